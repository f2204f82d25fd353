import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { expect, test } from 'vitest'

// The library also comes as a program of its own; in this process it is the same everywhere.
process.env.RECHECK_BACKEND = 'pure'
const { checkSync } = await import('recheck')

const ROOT = new URL('../../', import.meta.url).pathname

/** These read nothing but texts of this package and of BullMQ: the Lua and its scripts. */
const OWN_TEXTS = ['src/redis/lua-composer.ts', 'src/redis/scripts.ts', 'src/redis/bullmq-scripts.ts']

/** Patterns that are put together at run time, each with the reason why what it meets can not make it slow. */
const COMPUTED: Readonly<Record<string, string>> = {
  'src/egress/rule-match.ts': 'the rules are those of the program, and meet 64 kB at most',
  'src/egress/signals/instant.ts': 'dates: every part has a fixed length',
  'packages/programs/src/program-settings.ts': 'a list of names',
  'src/secret-mask.ts': 'the secrets are those of the program, and nothing in their patterns repeats without a bound',
}

/** Patterns that the check can not decide, or that are slow where that does not matter, each with the reason. */
const REVIEWED: Readonly<Record<string, string>> = {}

function sourcesIn(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.(?:ts|js)$/.test(file))
    .map((file) => `${folder}/${file}`)
    .filter((file) => !/\/(?:test|dist|node_modules)\//.test(file) && !OWN_TEXTS.some((own) => file.startsWith(own)))
}

/** The patterns of all files: as literals, with the first file of each, and the files that compute some. */
function patterns() {
  const literals = new Map<string, string>()
  const computing = new Set<string>()
  for (const file of [...sourcesIn('src'), ...sourcesIn('packages')]) {
    const text = readFileSync(join(ROOT, file), 'utf8')
    // Most files have none.
    if (!text.includes('RegExp') && !/[=(,:?[&|!]\s*\/[^/*\s]/.test(text)) continue
    const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest)
    const visit = (node: ts.Node): void => {
      if (ts.isRegularExpressionLiteral(node) && !literals.has(node.text)) literals.set(node.text, file)
      const isCall = ts.isNewExpression(node) || ts.isCallExpression(node)
      if (isCall && ts.isIdentifier(node.expression) && node.expression.text === 'RegExp') computing.add(file)
      ts.forEachChild(node, visit)
    }
    visit(source)
  }
  return { literals, computing }
}

/** 'safe', how slow it can be, or why that can not be decided. */
function checked(source: string, flags: string): string {
  // Nothing in it repeats without a bound.
  if (!/[*+]|\{\d+,\}/.test(source)) return 'safe'
  const found = checkSync(source, flags, { checker: 'automaton', timeout: 100_000 })
  if (found.status === 'unknown') return found.error.kind
  return found.status === 'safe' ? 'safe' : found.complexity.summary
}

const found = patterns()

test('no input can make a pattern slow', () => {
  expect(found.literals.size).toBeGreaterThan(150)
  const verdicts = [...found.literals].flatMap(([literal, file]) => {
    const end = literal.lastIndexOf('/')
    const verdict = checked(literal.slice(1, end), literal.slice(end + 1))
    return verdict === 'safe' || literal in REVIEWED ? [] : [`${file}: ${literal} is ${verdict}`]
  })
  expect(verdicts).toEqual([])
}, 600_000)

test('a slow pattern is found', () => {
  expect(checked('"(?:[^"\\\\]|\\\\.)*"', 'g')).toBe('2nd degree polynomial')
})

test('patterns that are put together at run time are reviewed, and all reviews are of use', () => {
  expect([...found.computing].sort()).toEqual(Object.keys(COMPUTED).sort())
  expect(Object.keys(REVIEWED).filter((literal) => !found.literals.has(literal))).toEqual([])
})
