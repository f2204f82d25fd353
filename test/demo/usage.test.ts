import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { main } from '../../workers/demo/main.ts'
import { findFreePort } from '../../workers/services/free-port.ts'
import { type Printed, printedBy } from '../support/printed.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

/** Runs `npm start` in this process, as far as to its first error. @returns its exit code, and what it printed */
async function start(...args: string[]): Promise<Printed> {
  const streams = [process.stdout, process.stderr]
  const listeners = streams.map((stream) => stream.listeners('error'))
  try {
    return await printedBy(() => main(args, 'nothing is started'))
  } finally {
    // Those of a program stay until it ends.
    for (const [i, stream] of streams.entries()) {
      for (const listener of stream.listeners('error')) {
        if (!listeners[i]?.includes(listener)) stream.off('error', listener as () => void)
      }
    }
  }
}

test.each([
  ['a rate', ['--rate', '50'], /--rate.*'50' is invalid\. Expected a rate such as 50\/s.* day\)\.\n/],
  ['a rate so low', ['--rate', '1/min'], /750 lines for one queue at 1\/min take about 12\.5 hours: .* higher --rate/],
  ['a capacity', ['--capacity', '0'], /--capacity.*whole number from 1 to 1000000, got "0"/],
  ['workers', ['--workers', '2.5'], /--workers.*whole number from 1 to 32, got "2\.5"/],
  ['an argument', ['now'], /too many arguments/],
  ['an input', ['--input', 'missing.ndjson'], /cannot read the input: ENOENT/],
  ['what only tenants have', ['--seconds', '4'], /option '--seconds' needs '--tenants <number>'/],
])('ends with 2 and a message for %s it cannot use', async (_, args, message) => {
  const { code, output } = await start(...args)
  expect(code).toBe(2)
  expect(output).toMatch(message)
  expect(output).toMatch(/\nsee npm start -- --help\n$/)
  expect(output).not.toContain('Redis')
})

test('ends with 2 and the line number for a wrong line, before it starts anything', async () => {
  const input = join(temporaryFolder(), 'outbox.ndjson')
  const mail = { kind: 'email', from: 'a@example.com', to: 'b@example.com', subject: 's', text: 't' }
  writeFileSync(input, [mail, mail, { ...mail, to: undefined }].map((line) => `${JSON.stringify(line)}\n`).join(''))
  const { code, output } = await start('--input', input)
  expect(code).toBe(2)
  expect(output).toMatch(/outbox\.ndjson, line 3: the mail was not accepted: to:/)
  expect(output).not.toContain('Redis')
})

test.each([[[]], [['--dashboard']], [['--tenants', '3']]])(
  'ends with 1 and the reason on stderr if REDIS_URL cannot be used (%j)',
  async (args) => {
    const host = `127.0.0.1:${await findFreePort()}`
    vi.stubEnv('REDIS_URL', `redis://user:secret@${host}`)
    const { code, stderr } = await start(...args)
    vi.unstubAllEnvs()
    const why = `REDIS_URL: cannot use Redis at ${host}: connect ECONNREFUSED ${host}`
    expect({ code, stderr }).toEqual({ code: 1, stderr: `npm start failed: ${why}\n` })
  },
)
