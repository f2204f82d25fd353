import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import { afterAll, describe, expect, test } from 'vitest'
import { useRedis } from '../../../test/support/redis.ts'
import { COMMANDS } from '../src/command-list.ts'
import { completionScript, placesOf, SHELLS } from '../src/completion-scripts.ts'
import { runHere } from './run-here.ts'

const redis = useRedis(import.meta.url)
const folder = mkdtempSync(join(tmpdir(), 'sluice-completion-'))
afterAll(() => rmSync(folder, { recursive: true }))

/** A small program: a command with a command, options with and without a value, a quote in a description. */
function places() {
  const program = new Command('sluice').option('--prefix <text>', "the queues' prefix").option('--json', 'print JSON')
  const shape = program.command('shape').description('Shapes: all of them.')
  shape.command('show').description('Shows one.')
  shape.command('set').description('Sets one.').option('--file <file>', 'a file').option('--rate <rate>', 'a rate')
  program.command('status').description('The queues.')
  return placesOf(program)
}

test('places know their commands and options', () => {
  const [root, shape, show, set, status] = places()
  expect([root, shape, show, set, status].map((place) => place?.path)).toEqual([
    '',
    'shape',
    'shape show',
    'shape set',
    'status',
  ])
  expect(root?.commands).toContainEqual({ word: 'shape', description: 'Shapes' })
  expect(set?.options).toContainEqual({ word: '--file', description: 'a file', takes: 'file' })
  expect(set?.options).toContainEqual({ word: '--rate', description: 'a rate', takes: 'text' })
})

describe('bash', () => {
  const script = join(folder, 'sluice.bash')
  writeFileSync(script, completionScript('bash', places()))

  test.each([
    [['s'], ['shape', 'status']],
    [
      ['shape', 's'],
      ['show', 'set'],
    ],
    [
      ['--json', 'shape', 's'],
      ['show', 'set'],
    ],
    [['--prefix', 'shape', 'st'], ['status']],
    [['shape', 'set', 'emails', '--ra'], ['--rate']],
    [['shape', 'set', '--rate', ''], []],
    [['shape', 'set', '--file', `${folder}/sluice.b`], [script]],
  ])('%j', (words, expected) => {
    const list = ['sluice', ...words].map((word) => `'${word}'`).join(' ')
    const text = `source ${script}; COMP_WORDS=(${list}); COMP_CWORD=${words.length}; _sluice; printf '%s\\n' "\${COMPREPLY[@]}"`
    const found = execFileSync('bash', ['--norc', '-c', text], { encoding: 'utf8' })
    expect(found.split('\n').filter((word) => word !== '')).toEqual(expected)
  })
})

test.each(SHELLS)(
  'sluice completion %s prints a script that holds every command, and that the shell can read',
  async (shell) => {
    const { code, stdout } = await runHere(redis, ['completion', shell])
    expect(code).toBe(0)
    for (const { name } of COMMANDS) expect(stdout).toMatch(new RegExp(`\\b${name}\\b`))
    const script = join(folder, `whole.${shell}`)
    writeFileSync(script, stdout)
    const { error, status, stderr } = spawnSync(shell, ['-n', script], { encoding: 'utf8' })
    // Not every machine has every shell.
    if ((error as NodeJS.ErrnoException | undefined)?.code !== 'ENOENT')
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  },
)
