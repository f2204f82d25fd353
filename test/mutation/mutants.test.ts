import { readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { luaEdits } from './lua-edits.ts'
import { sampleOf } from './mutants.ts'
import { ROOMS } from './rooms.ts'
import { typescriptEdits } from './typescript-edits.ts'

const applied = (text: string, edits: typeof luaEdits) =>
  edits(text).map(({ start, end, replacement }) => text.slice(0, start) + replacement + text.slice(end))

test('mutants of Lua differ in one place', () => {
  expect(applied('if a < 2 then f(math.min(a, -b)) end', luaEdits)).toEqual([
    'if not (a < 2) then f(math.min(a, -b)) end',
    'if a <= 2 then f(math.min(a, -b)) end',
    'if a < 3 then f(math.min(a, -b)) end',
    'if a < 2 then  end',
    'if a < 2 then f(math.max(a, -b)) end',
    'if a < 2 then f(math.min(a, b)) end',
  ])
  expect(applied('local function f(a) return not a and (b) == true end', luaEdits)).toEqual([
    'local function f(a) do return end return not a and (b) == true end',
    'local function f(a) return not a or (b) == true end',
    'local function f(a) return  a and (b) == true end',
    'local function f(a) return not a and (b) ~= true end',
    'local function f(a) return not a and (b) == false end',
  ])
})

test('mutants of TypeScript differ in one place, and none in a type or in the words of an error', () => {
  const text = "function f(a: 1 | true) { if (a >= 2) throw new Error(a + 1 + 'x'); g(Math.floor(a)) }"
  expect(applied(text, typescriptEdits)).toEqual([
    text.replace('if (a', 'if (1) return; if (a'),
    text.replace('a >= 2', '!(a >= 2)'),
    text.replace('>=', '>'),
    text.replace('>= 2', '>= 3'),
    text.replace('g(Math.floor(a))', ';'),
    text.replace('floor', 'ceil'),
  ])
})

test('a seed draws the same sample', () => {
  const numbers = Array.from({ length: 100 }, (_, i) => i)
  expect(sampleOf(numbers, 10, 1)).toEqual(sampleOf(numbers, 10, 1))
  expect(sampleOf(numbers, 10, 1)).not.toEqual(sampleOf(numbers, 10, 2))
})

test('each file of Lua is mutated in one room, by tests that exist', () => {
  const root = resolve(import.meta.dirname, '../..')
  const under = (folder: string) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((file) => join(folder, file))
  const roomsOf = (file: string) => ROOMS.filter(({ of }) => of.some((it) => `${file}/`.startsWith(`${it}/`)))
  const scripts = under('lua').filter((file) => file.endsWith('.lua'))
  expect(scripts.filter((file) => roomsOf(file).length !== 1)).toEqual([])
  const files = ['lua', 'src', 'test', 'packages'].flatMap(under)
  const named = ROOMS.flatMap(({ of, quick, wide }) => [...of, ...quick, ...wide])
  // As vitest finds them, by the beginning of a path.
  expect([...new Set(named)].filter((it) => !files.some((file) => `${file}/`.startsWith(it)))).toEqual([])
})
