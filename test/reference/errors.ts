import * as fetching from '../../packages/fetch/src/index.ts'
import * as client from '../../packages/gateway/src/client/index.ts'
import * as http from '../../packages/gateway/src/index.ts'
import * as egress from '../../src/egress/index.ts'
import * as sluice from '../../src/index.ts'
import * as inspect from '../../src/inspect/index.ts'
import * as limits from '../../src/limits/index.ts'
import type { Declarations } from './declarations.ts'
import { table } from './tables.ts'

const ENTRIES = {
  sluice,
  'sluice/limits': limits,
  'sluice/inspect': inspect,
  'sluice-gateway/client': client,
  'sluice/egress': egress,
  'sluice-fetch': fetching,
  'sluice-gateway': http,
}

/** The names of the exported errors, with the first entry that exports each. */
export function exportedErrors(): ReadonlyMap<string, string> {
  const found = new Map<string, string>()
  for (const [entry, exported] of Object.entries(ENTRIES)) {
    const errors = Object.entries(exported).filter(([, value]) => isError(value))
    for (const [name] of errors.toSorted(([one], [other]) => (one < other ? -1 : 1))) {
      if (!found.has(name)) found.set(name, entry)
    }
  }
  return found
}

export function errorsTable(declarations: Declarations): string {
  let last = ''
  const rows = [...exportedErrors()].flatMap(([name, entry]) => {
    const base = declarations.baseOf(name)
    const fields = declarations.ownMembers(name).filter((member) => member.name !== 'name')
    const shown = fields.map((field) => `\`${field.name}\``).join(', ')
    const row = [`[${name}](#${name.toLowerCase()})`, base === 'SluiceError' ? '' : `\`${base}\``, shown]
    const head = entry === last ? [] : [[`**${entry}**`, '', '']]
    last = entry
    return [...head, row]
  })
  return table(['error', 'extends', 'fields of its own'], rows)
}

function isError(value: unknown): boolean {
  return value === sluice.SluiceError || (typeof value === 'function' && value.prototype instanceof sluice.SluiceError)
}
