import { expect, test, vi } from 'vitest'
import { COMMANDS } from '../../src/cli/command-list.ts'
import { runCommandLine } from '../../src/cli/program.ts'

async function helpOf(path: readonly string[]): Promise<string> {
  let text = ''
  const out = vi.spyOn(process.stdout, 'write').mockImplementation((part) => {
    text += part
    return true
  })
  try {
    expect(await runCommandLine([...path, '--help'])).toBe(0)
    return text
  } finally {
    out.mockRestore()
  }
}

/** The names of the commands that a help lists. */
function listed(help: string): string[] {
  const [, commands = ''] = /^Commands:\n((?: .*\n)+)/m.exec(help) ?? []
  return [...commands.matchAll(/^ {2}([a-z-]+)/gm)].flatMap(([, name = '']) => (name === 'help' ? [] : [name]))
}

test('the help of an unknown command says that there is none', async () => {
  let text = ''
  const err = vi.spyOn(process.stderr, 'write').mockImplementation((part) => {
    text += part
    return true
  })
  const code = await runCommandLine(['help', 'statsu'])
  err.mockRestore()
  expect({ code, text }).toEqual({ code: 2, text: "sluice: unknown command 'statsu'\n" })
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
