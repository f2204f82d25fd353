import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { type Child, startChild } from '../../workers/demo/child.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

function start(source: string): Child {
  const dir = temporaryFolder()
  const program = join(dir, 'program.mjs')
  writeFileSync(program, source)
  return startChild({ name: 'the program', program, env: { GREETING: 'hello' }, logFile: join(dir, 'program.log') })
}

test('ends without an error after exit code 0, with its messages delivered', async () => {
  const child = start("process.send({ greeting: process.env['GREETING'] })")
  const messages: unknown[] = []
  child.process.on('message', (message) => messages.push(message))
  expect(await child.ended).toBeUndefined()
  expect(messages).toEqual([{ greeting: 'hello' }])
})

test('ends with its last lines after another exit code', async () => {
  const child = start("console.error('cannot go on'); process.exit(3)")
  expect((await child.ended)?.message).toBe('the program ended with exit code 3. Its last lines:\ncannot go on')
})

test('ends with the signal that somebody else sent', async () => {
  const child = start("process.send('up'); setInterval(() => {}, 1000)")
  await once(child.process, 'message')
  child.process.kill('SIGKILL')
  expect((await child.ended)?.message).toBe('the program ended with SIGKILL. Its last lines:\nIt printed nothing.')
})

test('stop ends it with SIGTERM, and is no failure', async () => {
  const child = start("process.on('SIGTERM', () => process.exit(7)); process.send('up'); setInterval(() => {}, 1000)")
  await once(child.process, 'message')
  await child.stop()
  expect(child.process.exitCode).toBe(7)
  expect(await child.ended).toBeUndefined()
})

test('stop does not wait for ever for a program that does not listen', async () => {
  const child = start("process.on('SIGTERM', () => {}); process.send('up'); setInterval(() => {}, 1000)")
  await once(child.process, 'message')
  await child.stop(50)
  expect(child.process.signalCode).toBe('SIGKILL')
})

test('stop may come after the end', async () => {
  const child = start('')
  await child.ended
  await child.stop()
})

test('ends with its parent', async () => {
  const child = start("process.send('up'); setInterval(() => {}, 1000)")
  await once(child.process, 'message')
  const exited = once(child.process, 'exit')
  // What the child sees when its parent is gone.
  child.process.disconnect()
  expect(await exited).toEqual([1, null])
})
