import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Edit } from './edits.ts'
import { luaEdits } from './lua-edits.ts'
import { typescriptEdits } from './typescript-edits.ts'

/** A file with one edit. */
export interface Mutant extends Edit {
  readonly file: string
  readonly line: number
  /** Its line without and with the edit. */
  readonly before: string
  readonly after: string
  /** The whole text with the edit. */
  readonly text: string
}

export function mutantsOf(root: string, file: string): Mutant[] {
  const text = readFileSync(join(root, file), 'utf8')
  const edits = file.endsWith('.lua') ? luaEdits(text) : typescriptEdits(text)
  return edits.map((edit) => {
    const mutated = text.slice(0, edit.start) + edit.replacement + text.slice(edit.end)
    const line = text.slice(0, edit.start).split('\n').length
    const lineEnd = (end: number) => (text.indexOf('\n', end) < 0 ? text.length : text.indexOf('\n', end))
    const lineStart = text.lastIndexOf('\n', edit.start - 1) + 1
    const shift = mutated.length - text.length
    const before = text.slice(lineStart, lineEnd(edit.end))
    const after = mutated.slice(lineStart, lineEnd(edit.end) + shift)
    return { ...edit, file, line, before: before.trim(), after: after.trim(), text: mutated }
  })
}

/** As many as are asked for, the same for the same seed, in the order of a shuffled list. */
export function sampleOf<Item>(items: readonly Item[], count: number, seed: number): Item[] {
  const random = mulberry(seed)
  const keyed = items.map((item) => ({ item, key: random() }))
  return keyed
    .toSorted((one, other) => one.key - other.key)
    .slice(0, count)
    .map(({ item }) => item)
}

function mulberry(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
