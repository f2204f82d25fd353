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
