import { expect, test } from 'vitest'
import { printedBy } from '../../../test/support/printed.ts'
import { COMMANDS } from '../src/command-list.ts'
import { runCommandLine } from '../src/program.ts'

async function helpOf(path: readonly string[]): Promise<string> {
  const { code, stdout } = await printedBy(() => runCommandLine([...path, '--help']))
  expect(code).toBe(0)
  return stdout
}

/** The names of the commands that a help lists. */
function listed(help: string): string[] {
  const [, commands = ''] = /^Commands:\n((?: .*\n)+)/m.exec(help) ?? []
  return [...commands.matchAll(/^ {2}([a-z-]+)/gm)].flatMap(([, name = '']) => (name === 'help' ? [] : [name]))
}

test('the help of an unknown command says that there is none', async () => {
  const { code, stderr } = await printedBy(() => runCommandLine(['help', 'statsu']))
  expect({ code, stderr }).toEqual({ code: 2, stderr: "sluice: unknown command 'statsu'\n" })
})

// The settings of the programs are a table, which is wider.
const PROGRAMS = ['worker email', 'worker db-writes', 'worker http', 'gateway']

test('the help of every command fits into 80 columns', async () => {
  const paths = [[], ...COMMANDS.map(({ name }) => [name])]
  for (const path of paths) {
    if (PROGRAMS.includes(path.join(' '))) continue
    const help = await helpOf(path)
    expect(help.split('\n').filter((line) => line.length > 80)).toEqual([])
    if (path.length === 1) paths.push(...listed(help).map((name) => [...path, name]))
  }
  expect(paths.length).toBeGreaterThan(40)
})

test('the examples in the help of every command use options that there are', async () => {
  const paths = COMMANDS.map(({ name }) => [name])
  const helps = new Map<string, string>()
  for (const path of paths) {
    if (PROGRAMS.includes(path.join(' '))) continue
    const help = await helpOf(path)
    helps.set(path.join(' '), help)
    paths.push(...(path.length === 1 ? listed(help).map((name) => [...path, name]) : []))
  }
  const general = await helpOf([])
  const examples = [...helps.values()].flatMap((help) => examplesIn(help))
  expect(examples.length).toBeGreaterThan(35)
  const wrong = examples.filter((example) => {
    const [, one = '', two = ''] = /sluice ([a-z-]+)(?: ([a-z-]+))?/.exec(example) ?? []
    const known = `${helps.get(`${one} ${two}`) ?? helps.get(one)}${general}`
    return [...example.matchAll(/ (--[a-z-]+)/g)].some(
      ([, option]) => !new RegExp(`${option}\\b`).test(optionsOf(known)),
    )
  })
  expect(wrong).toEqual([])
})

/** The calls of sluice in the examples of a help, each on one line. */
function examplesIn(help: string): string[] {
  const [, examples = ''] = help.split(/^Examples?:\n/m)
  return examples
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .flatMap((line) => line.replaceAll(/'[^']*'/g, "''").split(/\|/))
    .filter((call) => /\bsluice [a-z]/.test(call))
}

/** What the help says of options, without the examples. */
function optionsOf(help: string): string {
  return help
    .split('\n')
    .filter((line) => /^ {2}-/.test(line))
    .join('\n')
}
