import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test as testAlone } from 'vitest'
import { nextSteps } from '../../workers/demo/verdict.ts'
import { documents } from '../package/code-blocks.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type DemoProcess, startDemo } from './demo-process.ts'

useConcurrentTests()

const example = readFileSync(new URL('../../examples/outbox.ndjson', import.meta.url), 'utf8').split('\n')

/** An outbox of the first lines of the example, so many of each kind. */
function smallOutbox(mails: number, writes: number): string {
  const file = join(temporaryFolder(), 'outbox.ndjson')
  const ofKind = (kind: string) => example.filter((line) => line.startsWith(`{"kind":"${kind}"`))
  writeFileSync(file, [...ofKind('email').slice(0, mails), ...ofKind('write').slice(0, writes)].join('\n'))
  return file
}

/** The cells of a row of the report. */
function row(output: string, label: string): string[] {
  const line = output.split('\n').find((candidate) => candidate.startsWith(`${label} `))
  if (line === undefined) throw new Error(`no row "${label}" in:\n${output}`)
  return line.slice(label.length).trim().split(/ {2,}/)
}

/** The options that a text names in the sentence or line of an `npm start --`. */
function optionsOfStart(text: string): string[] {
  const sentences = text.match(/npm start -- .*?(?:\. |\n|$)/g) ?? []
  return sentences.flatMap((sentence) => sentence.match(/(?<=[ `])--[a-z]+/g) ?? [])
}

/** A process that was told to end may take a moment to go. */
async function expectNothingLeft(demo: DemoProcess): Promise<void> {
  await expect.poll(() => [...demo.processes().values()], { timeout: 60_000 }).toEqual([])
  await expect.poll(() => demo.leftFiles(), { timeout: 60_000 }).toEqual([])
}

// How processes and their environments are found is Linux's way.
describe.skipIf(process.platform !== 'linux')('npm start', () => {
  // How close starts are is measured.
  testAlone('sends everything once, at the rate, and leaves nothing behind', async () => {
    const input = smallOutbox(30, 20)
    const demo = startDemo('--rate', '20/s', '--capacity', '5', '--workers', '2', '--compare', '--input', input)
    expect(await demo.exitCode, demo.output).toBe(0)
    expect(row(demo.output, 'accepted')).toEqual(['30', '20', '30', '20'])
    expect(row(demo.output, 'delivered')).toEqual(['30', '20', '30', '20'])
    expect(row(demo.output, 'lost')).toEqual(['0', '0', '0', '0'])
    expect(row(demo.output, 'twice')).toEqual(['0', '0', '0', '0'])
    // The fifth mail is answered 451 the first time, and a refused producer comes back.
    expect(row(demo.output, 'retried')).toEqual(['1', '0', '1', '0'])
    const [mailsRefused, writesRefused, ...unbounded] = row(demo.output, 'attempts refused (each was repeated)').map(
      Number,
    )
    expect(mailsRefused).toBeGreaterThan(0)
    expect(writesRefused).toBeGreaterThan(0)
    expect(unbounded).toEqual([0, 0])
    expect(row(demo.output, 'jobs above the bound, worst window of departures').slice(0, 2)).toEqual(['0', '0'])
    expect(row(demo.output, 'jobs above b + (T + J)/I, worst window of arrivals').slice(0, 2)).toEqual(['0', '0'])
    const verdict = 'Sent 50 of 50: 30 mails, 20 database writes.\nNever above 20/s, for either of them.\n'
    expect(demo.output).toContain(`\n\n${verdict}Nothing lost, nothing twice.\nMost starts in any 100 ms: `)
    const [ours = 0, theirs = 0] = (/100 ms: (\d+) with Sluice, (\d+) with BullMQ's/.exec(demo.output) ?? [])
      .slice(1)
      .map(Number)
    // 20/s: every 50 ms one.
    expect(ours).toBeLessThanOrEqual(3)
    expect(theirs).toBeGreaterThan(2 * ours)
    expect(demo.output.indexOf(verdict)).toBeLessThan(demo.output.indexOf('lines offered'))
    expect(demo.output).toMatch(/\n\nWhat to try next:\n {2}npm start -- --tenants 20 /)
    expect(demo.output).toContain('npx sluice-cli dashboard')
    expect(demo.output).toMatch(/^Starting Redis, SMTP server and PostgreSQL …\nRedis /)
    expect(demo.output).toContain('\nSluice: 50 lines, each queue: 20/s, 5 places, 2 worker processes\n')
    await expectNothingLeft(demo)
  })

  test('ends with 1, and says why, when a job never arrives', async () => {
    const input = smallOutbox(1, 1)
    // PostgreSQL's jsonb cannot hold NUL, and nobody before it refuses one.
    const parameters = { name: 'odd', details: { text: '\0' } }
    writeFileSync(
      input,
      `${readFileSync(input, 'utf8')}\n${JSON.stringify({ kind: 'write', statement: 'record-event', parameters })}`,
    )
    const demo = startDemo('--workers', '1', '--input', input)
    expect(await demo.exitCode, demo.output).toBe(1)
    expect(demo.output).toContain('npm start -- --dashboard')
    expect(row(demo.output, 'delivered')).toEqual(['1', '1'])
    expect(demo.output).toContain('db-writes: accepted jobs that never arrived: 1')
    expect(demo.output).toMatch(
      /Failed permanently:\n {2}db-writes job \S+: PostgreSQL refused the job permanently \(22P05\)/,
    )
    await expectNothingLeft(demo)
  })

  test('--dashboard serves a queue in which something happens, until Ctrl-C', async () => {
    const demo = startDemo('--dashboard')
    await demo.printed(/^Dashboard +http:\/\/127\.0\.0\.1:\d+$/m)
    const [, address] = /^Dashboard +(\S+)$/m.exec(demo.output) ?? []
    const page = await fetch(`${address}/`)
    expect([page.status, await page.text()]).toEqual([200, expect.stringContaining('<html')])
    await demo.printed(/noisy-corp adds 200 calls at once/)
    const fleet = (await (await fetch(`${address}/api/fleet`)).json()) as { queues: object[] }
    expect(fleet.queues).toMatchObject([{ name: 'api-calls', rate: '20/s' }])
    demo.signalGroup('SIGINT')
    expect(await demo.exitCode, demo.output).toBe(130)
    await expectNothingLeft(demo)
  })

  test('stops everything quietly when nobody reads on', async () => {
    const demo = startDemo('--rate', '5/s', '--workers', '1')
    await demo.printed(/^Sluice: /m)
    demo.closeOutput()
    expect(await demo.exitCode).toBe(141)
    expect(demo.errors).toBe('')
    await expectNothingLeft(demo)
  })

  test('stops everything on Ctrl-C', async () => {
    const demo = startDemo('--rate', '5/s', '--workers', '1')
    await demo.printed(/arrived [1-9]/)
    const running = [...demo.processes().values()].join('\n')
    for (const program of ['workers/email.mjs', 'workers/db-writes.mjs', 'workers/demo/producer.mjs', 'postgres']) {
      expect(running).toContain(program)
    }
    demo.signalGroup('SIGINT')
    // npm passes the signal on to a process that the terminal has told already.
    demo.signalGroup('SIGINT')
    expect(await demo.exitCode, demo.output).toBe(130)
    await expectNothingLeft(demo)
  })

  test('stops everything and says why when a worker dies', async () => {
    const demo = startDemo('--rate', '5/s', '--workers', '1')
    await demo.printed(/arrived [1-9]/)
    const [pid] = [...demo.processes()].find(([, command]) => command.includes('workers/email.mjs'))!
    process.kill(pid, 'SIGKILL')
    expect(await demo.exitCode, demo.output).toBe(1)
    expect(demo.output).toContain('emails worker 1 ended with SIGKILL')
    await expectNothingLeft(demo)
  })

  test('leaves nothing behind when it is killed either', async () => {
    const demo = startDemo('--rate', '5/s', '--workers', '1')
    await demo.printed(/arrived [1-9]/)
    demo.signalGroup('SIGKILL')
    await demo.exitCode
    await expectNothingLeft(demo)
  })

  // What else is not usable: usage.test.ts.
  test('ends with 2 and a message for an option it cannot use', async () => {
    const demo = startDemo('--speed', '1')
    expect(await demo.exitCode).toBe(2)
    expect(demo.output).toMatch(/unknown option '--speed'/)
    expect(demo.output).toMatch(/\nsee npm start -- --help\n$/)
    expect(demo.output).not.toContain('Redis')
  })

  test('explains itself', async () => {
    const demo = startDemo('--help')
    expect(await demo.exitCode).toBe(0)
    for (const option of ['--rate', '--capacity', '--workers', '--input', '--compare'])
      expect(demo.output).toContain(option)
    const promised = [...documents().map((file) => readFileSync(file, 'utf8')), nextSteps({})].flatMap(optionsOfStart)
    expect(new Set(promised).size).toBeGreaterThan(2)
    for (const option of promised) expect(demo.output).toContain(`${option} `)
    expect(demo.output.split('\n').filter((line) => line.length > 80)).toEqual([])
  })
})
