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

/** What each entry exports: mistakes of a program apart. */
export function errorsTable(declarations: Declarations): string {
  const isMistake = (name: string): boolean => {
    const base = declarations.baseOf(name) ?? ''
    return base === 'InvalidInputError' || (base !== 'Error' && isMistake(base))
  }
  const rows = Object.keys(ENTRIES).map((entry) => {
    const names = [...exportedErrors()].flatMap(([name, from]) => (from === entry ? [name] : []))
    const links = (those: readonly string[]) => those.map((name) => `[${name}](#${name.toLowerCase()})`).join(', ')
    const [mistakes, others] = [names.filter(isMistake), names.filter((name) => !isMistake(name))]
    return [`\`${entry}\``, entry === 'sluice' ? 'all others' : links(others), links(mistakes)]
  })
  return table(['from', 'errors', 'mistakes: `InvalidInputError`'], rows)
}

/** The fields that errors add, by their names. */
export function errorFields(declarations: Declarations, name: string): string[] {
  return declarations.ownMembers(name).flatMap((member) => (member.name === 'name' ? [] : [member.name]))
}

function isError(value: unknown): boolean {
  return value === sluice.SluiceError || (typeof value === 'function' && value.prototype instanceof sluice.SluiceError)
}
