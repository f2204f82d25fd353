import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { installedScripts, isPrepared, LIMIT_SCRIPTS } from '../src/redis/scripts.ts'

const LUA = new URL('../lua/verbs/', import.meta.url)
const files = readdirSync(LUA)
const read = (file: string) => readFileSync(new URL(file, LUA), 'utf8')

/** What a script takes of KEYS or ARGV: single places, and whether there is a list of any length behind them. */
interface Taken {
  readonly places: string[]
  readonly list: boolean
}

/** What the header says of KEYS or ARGV. One that says nothing of KEYS has that of the shape. */
function named(text: string, section: 'KEYS' | 'ARGV'): Taken {
  const header = text.slice(0, text.indexOf(']]\n'))
  if (section === 'KEYS' && !header.includes('  KEYS\n')) return { places: ['1'], list: false }
  const [, part = ''] = new RegExp(`^  ${section}\\b(.*?)^  (?!  )\\b`, 'ms').exec(header) ?? []
  const places = [...part.matchAll(/\[(\d+)\]/g)].map(([, place]) => place as string)
  return { places, list: /\[\d+…\]|^ +then (?:\w+ )*for each /m.test(part) }
}

/**
 * What the body reads. A script that prepares KEYS and ARGV for BullMQ's text keeps its own in `keys` and `argv`, and
 * reads only lists where they came.
 */
function taken(text: string, section: 'KEYS' | 'ARGV'): Taken {
  const body = text.slice(text.indexOf(']]\n') + 3)
  const copy = section.toLowerCase()
  const copies = new RegExp(`for i = 1, (\\d+|#${section}) do ${copy}\\[i\\] = ${section}\\[i\\] end`).exec(body)
  const reads = body
    .replace(copies?.[0] ?? '', '')
    .matchAll(new RegExp(`\\b${copies ? copy : section}\\[([^\\]]+)\\]`, 'g'))
  const indices = [...reads].map(([, index]) => index as string)
  const count = Number(copies?.[1]) || 0
  const counted = Array.from({ length: count }, (_, i) => String(i + 1))
  const single = indices.filter((index) => /^\d+$/.test(index))
  const dynamic = single.length < indices.length || new RegExp(`unpack\\(${section}, \\d+\\)`).test(body)
  const listed = new RegExp(`\\b${section}\\[at\\b`).test(body)
  const list = counted.length > 0 ? listed : dynamic
  return { places: [...new Set([...counted, ...single])], list }
}

function sorted({ places, list }: Taken): Taken {
  return { places: places.toSorted((a, b) => a.localeCompare(b, 'en', { numeric: true })), list }
}

describe.each(files)('%s', (file) => {
  const text = read(file)

  test.each(['KEYS', 'ARGV'] as const)('its header names exactly the %s that its body reads', (section) => {
    expect(sorted(taken(text, section))).toEqual(sorted(named(text, section)))
  })
})

test('the number of keys that a script is defined with is the number that its header names', () => {
  const scripts = installedScripts()
  const varying: readonly string[] = ['add-flow', 'view', ...LIMIT_SCRIPTS]
  const own = [...scripts.texts().keys()].filter((name) => !(isPrepared(name) || varying.includes(name)))
  const found = own.map((name) => [name, scripts.command(name).keys])
  expect(found).toEqual(own.map((name) => [name, named(read(`${name}.lua`), 'KEYS').places.length]))
  expect(own.length).toBeGreaterThan(5)
})

test('every file of lua/verbs/ is a script that is defined', () => {
  const scripts = installedScripts()
  const ours = [...scripts.texts().keys()].filter((name) => !isPrepared(name))
  expect([...ours, 'simulate'].toSorted()).toEqual(files.map((file) => file.replace('.lua', '')).toSorted())
})

test("every script whose delays count on Redis's clock has what reads it", () => {
  const scripts = installedScripts()
  // With the names that BullMQ gives to keys.
  const reading = [...scripts.texts().values()].filter((lua) =>
    /delay_clock\.(?:at\(math\.\w+, |due\()[a-zK]+[A-Z]/.test(lua),
  )
  expect(reading.length).toBeGreaterThan(10)
  for (const lua of reading) {
    expect(lua).toMatch(/^redis_delay_clock = function\(\)$/m)
    expect(lua).not.toMatch(/(?<!modules\.redis_)delay_clock\.(?:at\(math\.\w+, |due\()[a-zK]+[A-Z]/)
  }
})

describe('the comparison itself', () => {
  const script = (header: string, body: string) => `--[[\n  Does it.\n${header}  Returns nothing.\n]]\n${body}\n`
  const header = '  KEYS\n    [1]  the shape\n  ARGV\n    [1]  one\n    [2]  two\n'

  test.each([
    ['an argument that is not named', 'return { KEYS[1], ARGV[1], ARGV[2], ARGV[3] }'],
    ['an argument that is not read', 'return { KEYS[1], ARGV[1] }'],
    ['a list that is not named', 'return { KEYS[1], ARGV[1], ARGV[2], ARGV[at + 1] }'],
  ])('finds %s', (_what, body) => {
    const text = script(header, body)
    expect(sorted(taken(text, 'ARGV'))).not.toEqual(sorted(named(text, 'ARGV')))
    expect(sorted(taken(text, 'KEYS'))).toEqual(sorted(named(text, 'KEYS')))
  })

  test('knows lists behind places', () => {
    const list = script('  KEYS\n    [1]  the shape\n  ARGV\n    [1]  one\n    then two for each job: a, b\n', '')
    expect(named(list, 'KEYS')).toEqual({ places: ['1'], list: false })
    expect(named(list, 'ARGV')).toEqual({ places: ['1'], list: true })
  })
})
