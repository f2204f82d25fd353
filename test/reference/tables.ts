import { Help } from 'commander'
import ts from 'typescript'
import type { SettingTable } from '../../packages/programs/src/settings.ts'
import type { Declarations, Member } from './declarations.ts'

export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)].join('\n')
}

/** Names and what they mean, as the help of a command aligns them. */
export function alignedText(rows: readonly (readonly [string, string])[]): string {
  const help = Object.assign(new Help(), { helpWidth: 80, minWidthToWrap: 24 })
  const width = Math.max(...rows.map(([name]) => name.length))
  return rows.map(([name, meaning]) => help.formatItem(name, width, meaning, help)).join('\n')
}

/** Where more is said about some of the options: their names link to it. */
export type More = Readonly<Record<string, string>>

/** The options that interfaces declare themselves or inherit from others of src. */
export function optionsTable(declarations: Declarations, names: readonly string[], more: More = {}): string {
  const members = names.flatMap((name) => declarations.allMembers(name))
  return table(['option', 'meaning'], meanings(members, more))
}

export function meanings(members: readonly Member[], more: More): string[][] {
  const unknown = Object.keys(more).filter((name) => !members.some((member) => member.name === name))
  if (unknown.length > 0) throw new Error(`there is no ${unknown.join(', ')}`)
  return members.map(({ name, comment, isOptional }) => [
    more[name] === undefined ? `\`${name}\`` : `[\`${name}\`](${more[name]})`,
    isOptional ? comment : `${comment} Required.`,
  ])
}

/** Events with the objects that emit them. */
export function eventsTable(declarations: Declarations, listeners: Readonly<Record<string, string>>): string {
  const emitters = new Map<string, string[]>()
  for (const [emitter, listener] of Object.entries(listeners)) {
    for (const event of declarations.ownMembers(listener)) {
      const row = `\`${event.name}\` | ${argumentsOf(declarations, event)} | ${event.comment}`
      emitters.set(row, [...(emitters.get(row) ?? []), emitter])
    }
  }
  return table(
    ['event', 'arguments', 'when', 'on'],
    [...emitters].map(([row, names]) => [row, names.join(', ')]),
  )
}

/** `job, { latenessUs, clockErrorUs }`: the properties of what is an object of few. */
function argumentsOf(declarations: Declarations, { parameters }: Member): string {
  const shown = parameters.map(({ name, type }) => {
    const properties = type ? propertiesOf(declarations, type) : []
    return properties.length > 0 && properties.length <= 7 ? `{ ${properties.join(', ')} }` : name.getText()
  })
  return `\`${shown.join(', ')}\``
}

function propertiesOf(declarations: Declarations, type: ts.TypeNode): string[] {
  if (ts.isTypeLiteralNode(type)) return type.members.flatMap(({ name }) => name?.getText() ?? [])
  const name = ts.isTypeReferenceNode(type) ? type.typeName.getText() : ''
  return declarations.has(name) ? declarations.allMembers(name).map((member) => member.name) : []
}

/** What a default or the name (`_MS`) shows by itself; the error about a wrong value says it. */
const TYPE = /^(?:a whole number|milliseconds|true or false)[^:]*: /

const DISJUNCTION = new Intl.ListFormat('en-GB', { type: 'disjunction' })

/** Environment variables of programs, as their help has them; one that several have has the default of each. */
export function settingsText(tables: readonly SettingTable[], omitted: SettingTable = {}): string {
  const left = new Set(Object.values(omitted).map(({ variable }) => variable))
  const rows = new Map<string, { readonly expected: string; readonly defaults: Set<string> }>()
  for (const { variable, expected, fallback } of tables.flatMap((one) => Object.values(one))) {
    if (left.has(variable)) continue
    const row = rows.get(variable) ?? { expected, defaults: new Set<string>() }
    row.defaults.add(fallback === undefined ? 'required' : fallback && `default ${fallback}`)
    rows.set(variable, row)
  }
  const lines = [...rows].map(([variable, { expected, defaults }]) => {
    const otherwise = [...defaults]
      .filter((one) => one !== '')
      .map((one, i) => (i > 0 ? one.replace('default ', '') : one))
    const suffix = otherwise.length > 0 ? ` (${DISJUNCTION.format(otherwise)})` : ''
    return [variable, `${expected.replace(TYPE, '')}${suffix}`] as const
  })
  return `\`\`\`\n${alignedText(lines)}\n\`\`\``
}
