import { expect, test } from 'vitest'
import { useRedis } from '../../support/redis.ts'
import { gate, Workshop } from '../../worker/support.ts'
import { CallerFleet, PROCESSES } from './support/caller-fleet.ts'
import { expectPausesKept, HORIZON_MS } from './support/checks.ts'
import { type Reply, type Script, startMailServer, type When } from './support/mail-server.ts'
import type { Opening } from './support/messages.ts'
import type { Run } from './support/run.ts'

const MAILS = 24
const GREYLIST_MS = 400
/**
 * Mails that come before the one that is refused: the first ones wait until all processes send. As many as are sent at
 * once, so that a connection that is used again would be the one that meets the refusal.
 */
const BEFORE = 12

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const fleet = new CallerFleet(redis)

const mail = (to: string) => ({ from: 'shop@example.com', to, subject: 'Hello', text: 'Hi' })
const addressOf = (i: number) => `b${i}@example.org`
const everybody = Array.from({ length: MAILS }, (_, i) => addressOf(i))

/** A script of the server that may look at what the fleet has done. */
interface FleetScript extends Omit<Script, 'recipient'> {
  readonly recipient?: (address: string, when: When, run: Run) => Promise<Reply | undefined>
}

/** Sends one mail to each address by three processes. */
async function send(
  script: FleetScript,
  opening: Pick<Opening, 'profile' | 'rules'>,
  opts: object = {},
  ended = MAILS,
) {
  const opened = gate<Run>()
  const server = await startMailServer({
    ...script,
    recipient: async (address, when) => {
      const run = await opened.opened
      await run.until(() => new Set(run.starts.map(({ pid }) => pid)).size === PROCESSES)
      return script.recipient?.(address, when, run)
    },
  })
  const queue = shop.queue({ rate: '100/s', horizonMs: HORIZON_MS })
  const added = await queue.addBulk(everybody.map((to) => ({ name: 'mail', data: mail(to), opts })))
  const task = { kind: 'email', url: server.url } as const
  const run = await fleet.open({ queue: queue.name, task, concurrency: 4, ...opening })
  opened.open(run)
  await run.until(() => run.ends.length >= ended)
  await fleet.close(queue.name)
  const idOf = (address: string) => added[everybody.indexOf(address)]?.id as string
  return { server, run, idOf, counts: await queue.getJobCounts() }
}

/** Answers one mail with this. */
function once(reply: Reply): Script {
  let left = 1
  return { recipient: async (_, { before }) => (before >= BEFORE && left-- > 0 ? reply : undefined) }
}

/** Every mail was taken once, at its first attempt. */
function expectAllSent({ server, run, counts }: Awaited<ReturnType<typeof send>>): void {
  expect(server.taken.toSorted()).toEqual(everybody.toSorted())
  expect(run.ends.filter(({ failedReason, attemptsMade }) => failedReason || attemptsMade !== 1)).toEqual([])
  expect(run.errors).toEqual([])
  expect(counts).toMatchObject({ completed: MAILS, failed: 0, waiting: 0, active: 0, delayed: 0 })
}

const CLOSING = { code: 421, message: '4.7.0 Try again later, closing connection' }

test('421 to one mail holds no other, and uses up no attempt', async () => {
  const sent = await send(once(CLOSING), { profile: 'smtp' })
  expect(sent.run.changes).toEqual([])
  expectAllSent(sent)
})

test('421 to one after the other pauses all three processes, and to the probe as well: fewer connections are enough', async () => {
  const untilTheProbe = async (_: string, { before }: When, { pauses }: Run) =>
    before >= BEFORE && pauses.length < 2 ? CLOSING : undefined
  const sent = await send({ recipient: untilTheProbe }, { profile: 'smtp' })
  const { pauses, changes } = sent.run
  const hard = { hard: true, source: 'smtp' }
  expect(pauses.map(({ change }) => change)).toMatchObject([hard, hard])
  const [first, second] = pauses.map(({ atMs, untilMs }) => untilMs - atMs)
  expect(first).toBeGreaterThanOrEqual(1000)
  expect(second).toBeGreaterThanOrEqual(2000)
  const [fewer] = changes.filter(({ kind }) => kind === 'concurrency')
  expect(fewer?.limit).toBeLessThanOrEqual((PROCESSES * 4) / 2)
  expectPausesKept(sent.run)
  expectAllSent(sent)
})

test("SES's 454 throttling pauses all three processes", async () => {
  const reply = { code: 454, message: 'Throttling failure: Maximum sending rate exceeded.' }
  const sent = await send(once(reply), { profile: 'ses' })
  const [pause] = sent.run.pauses
  expect(pause!.untilMs - pause!.atMs).toBeGreaterThanOrEqual(1500)
  expectPausesKept(sent.run)
  expectAllSent(sent)
})

test('a 454 that answers a login is not about the rate: attempts decide, nothing is held', async () => {
  const login = (count: number) =>
    count <= PROCESSES ? { code: 454, message: '4.7.0 Temporary authentication failure' } : undefined
  const { server, run, counts } = await send({ login }, { profile: 'ses' }, { attempts: 5, backoff: 1 })
  expect(run.changes).toEqual([])
  expect(run.ends.filter(({ attemptsMade }) => attemptsMade > 1)).toHaveLength(PROCESSES)
  expect(server.taken.toSorted()).toEqual(everybody.toSorted())
  expect(counts).toMatchObject({ completed: MAILS, failed: 0 })
})

test('greylisting holds the mail that it is about, and no other', async () => {
  const grey = everybody.slice(4, 7)
  const reply = { code: 451, message: '4.7.1 Greylisted, please try again later' }
  const recipient = async (address: string, { times }: When) =>
    grey.includes(address) && times === 1 ? reply : undefined
  const rules = [
    { match: { status: [450, 451], text: 'greylisted' }, action: { retryJob: `${GREYLIST_MS} ms` } },
  ] as const
  const sent = await send({ recipient }, { profile: 'smtp', rules })
  expect(sent.run.changes).toEqual([])
  for (const address of grey) {
    const [refused, taken] = sent.server.recipients.filter((seen) => seen.address === address)
    expect([refused!.reply, taken!.reply]).toEqual([reply, undefined])
    const starts = sent.run.starts.filter(({ jobId }) => jobId === sent.idOf(address))
    expect(starts).toHaveLength(2)
    expect(starts[1]!.departedAtUs / 1000 - refused!.answeredMs).toBeGreaterThanOrEqual(GREYLIST_MS - 1)
    const meanwhile = sent.run.starts.filter(
      ({ slotUs }) => slotUs / 1000 > refused!.answeredMs && slotUs < starts[1]!.slotUs,
    )
    expect(meanwhile.length, 'mails that did not wait for it').toBeGreaterThan(0)
  }
  expectAllSent(sent)
})

test('550 fails its mail at once, whatever attempts are left, and holds no other', async () => {
  const gone = everybody.slice(4, 7)
  const recipient = async (address: string) =>
    gone.includes(address) ? { code: 550, message: '5.1.1 No such user here' } : undefined
  const { server, run, idOf, counts } = await send({ recipient }, { profile: 'smtp' }, { attempts: 5, backoff: 1 })
  expect(run.changes).toEqual([])
  const failed = run.ends.filter(({ failedReason }) => failedReason)
  expect(failed.map(({ jobId }) => jobId).toSorted()).toEqual(gone.map(idOf).toSorted())
  expect(new Set(run.ends.map(({ attemptsMade }) => attemptsMade))).toEqual(new Set([1]))
  expect(server.recipients).toHaveLength(MAILS)
  expect(server.taken.toSorted()).toEqual(everybody.filter((address) => !gone.includes(address)).toSorted())
  expect(counts).toMatchObject({ completed: MAILS - gone.length, failed: gone.length })
})
