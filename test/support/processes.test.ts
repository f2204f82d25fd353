import { expect, test } from 'vitest'
import { useProcesses } from './processes.ts'

const processes = useProcesses()
const script = new URL('./programs/echo.ts', import.meta.url)

type Message = { type: 'ready'; greeting: string } | { type: 'echo'; value: number }

test('messages are waited for by type and content, also those that came before', async () => {
  const program = processes.fork<Message>(script, { env: { GREETING: 'hello' } })
  expect(await program.waitFor('ready')).toEqual({ type: 'ready', greeting: 'hello' })
  for (const value of [1, 2, 3]) program.send({ value })
  expect(await program.waitFor('echo', ({ value }) => value === 3)).toEqual({ type: 'echo', value: 3 })
  expect((await program.waitFor('echo')).value).toBe(1)
  expect(await program.kill()).toEqual({ code: null, signal: 'SIGKILL' })
})

test('waiting ends when the program does, and says what it printed', async () => {
  const program = processes.fork<Message>(script, { args: ['fail'] })
  await expect(program.waitFor('echo')).rejects.toThrow(
    /ended with code 3 before message 'echo' came[\s\S]*cannot go on/,
  )
  expect(await program.exited).toEqual({ code: 3, signal: null })
})

test('waiting ends after its time', async () => {
  const program = processes.fork<Message>(script)
  await program.waitFor('ready')
  await expect(program.waitFor('echo', undefined, 10)).rejects.toThrow('10 ms went by')
  await program.kill('SIGTERM')
})
