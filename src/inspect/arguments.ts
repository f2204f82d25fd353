import { checkArgument, checkCallOptions } from '../call-options.ts'

/** Checks arguments of programs without types, before anything is read. All throw InvalidInputError. */

export function checkName(call: string, name: unknown): void {
  checkArgument(typeof name === 'string', `${call}: the name of a queue`, 'a string', name)
}

export function checkNames(call: string, names: unknown): void {
  const isList = Array.isArray(names) && names.every((name) => typeof name === 'string')
  checkArgument(isList, `${call}: the names of queues`, 'a list of strings', names)
}

export function checkId(call: string, what: string, id: unknown): void {
  checkArgument(typeof id === 'string', `${call}: the id of a ${what}`, 'a string', id)
}

/** @param names of its options; `start` and `count` are whole numbers */
export function checkOptions(call: string, options: object, names: readonly string[]): void {
  checkCallOptions(call, options, names)
  const { start, count } = options as { readonly start?: unknown; readonly count?: unknown }
  for (const [name, value] of Object.entries({ start, count })) checkWhole(call, name, value)
}

export function checkWhole(call: string, name: string, value: unknown): void {
  const isRight = value === undefined || (Number.isSafeInteger(value) && (value as number) >= 0)
  checkArgument(isRight, `${call}: ${name}`, 'a whole number >= 0', value)
}
