import { expect, test } from 'vitest'
import { ShardCountError } from '../../src/errors.ts'
import type { Argument } from '../../src/redis/commands.ts'
import { type CoordinatedQueue, Coordinator, type Part } from '../../src/sharding/coordinator.ts'
import { VirtualTime } from '../model/virtual-time.ts'

const START_US = 1_700_000_000_000_000
const SECOND_US = 1_000_000
/** The way to the head, one way. */
const WAY_US = 80_000
/** Older reports are refused by the ledger: STALE_US of lua/sharding/ledger.lua. */
const STALE_US = 500_000
const REPORT = [1, '{}']

/** A head that divides whenever the reports are not too old, and notes when, and who had reported. */
function headOf(time: VirtualTime, short: () => string) {
  const rounds: { readonly atUs: number; readonly reported: number }[] = []
  const run = async (_script: string, args: readonly Argument[]) => {
    await time.until(time.nowUs + WAY_US)
    const nowUs = time.nowUs
    const old = args.length > 3 && nowUs - Number(args[1]) > STALE_US
    if (args.length > 3 && !old)
      rounds.push({ atUs: nowUs, reported: args.slice(3).filter((report) => report !== '').length })
    await time.until(time.nowUs + WAY_US)
    if (args.length === 3) return [2, String(nowUs), 0, 3, '0', []]
    return old ? [-2, String(nowUs), 0, 3, '0', []] : [1, String(nowUs), 250, 3, short(), ['', '', '']]
  }
  return { rounds, part: { run, recover: async () => {} } }
}

function begin(time: VirtualTime, head: Part, shards: readonly Part[], more: Partial<CoordinatedQueue> = {}) {
  const errors: Error[] = []
  const queue: CoordinatedQueue = {
    ...{ head, shards: shards.length, agree: async () => {}, check: () => {}, parts: () => shards },
    onError: (error) => errors.push(error),
    ...more,
  }
  const coordinator = new Coordinator(
    queue,
    time.local(START_US, () => 0),
  )
  return { coordinator, errors, play: (seconds: number) => time.run(() => false, START_US + seconds * SECOND_US) }
}

const answers: Part = { run: async () => REPORT, recover: async () => {} }

test('one shard whose connection is silent: the others are served in time, and it again once it answers', async () => {
  const time = new VirtualTime(START_US)
  const { rounds, part } = headOf(time, () => '0')
  let answer: (report: unknown) => void = () => {}
  let calls = 0
  const silent: Part = {
    run: () => {
      calls += 1
      if (time.nowUs >= START_US + 8 * SECOND_US) return Promise.resolve(REPORT)
      return new Promise((resolve) => {
        answer = resolve
      })
    },
    recover: async () => {},
  }
  time.at(START_US + 8 * SECOND_US, () => answer(REPORT))
  const { coordinator, errors, play } = begin(time, part, [answers, silent, answers])
  await play(10)
  void coordinator.close()
  const before = rounds.filter(({ atUs }) => atUs < START_US + 8 * SECOND_US)
  expect(new Set(before.map(({ reported }) => reported))).toEqual(new Set([2]))
  // Half of a lease: by then it has to be renewed.
  const times = [START_US, ...rounds.map(({ atUs }) => atUs)]
  const gaps = times.slice(1).map((atUs, i) => atUs - (times[i] as number))
  expect(Math.max(...gaps)).toBeLessThanOrEqual(SECOND_US)
  expect(rounds.at(-1)?.reported).toBe(3)
  // Of each call that is not answered the connection keeps the request.
  expect(calls).toBeLessThan(25)
  expect(errors).toEqual([])
})

test('a queue begins without a shard that does not answer, once its rate is free', async () => {
  const time = new VirtualTime(START_US)
  const { part } = headOf(time, () => '1')
  const silent: Part = { run: () => new Promise(() => {}), recover: async () => {} }
  const { coordinator, play } = begin(time, part, [answers, silent])
  let startedUs = 0
  void coordinator.started.then(() => {
    startedUs = time.nowUs
  })
  await play(6)
  void coordinator.close()
  expect(startedUs - START_US).toBeGreaterThan(3.1 * SECOND_US)
  expect(startedUs - START_US).toBeLessThan(5 * SECOND_US)
})

test('rounds are not repeated at once while a shard has no shape', async () => {
  const time = new VirtualTime(START_US)
  const { rounds, part } = headOf(time, () => '1')
  const shapeless: Part = { run: async () => [-1, ''], recover: async () => {} }
  const { coordinator, play } = begin(time, part, [answers, shapeless])
  await play(10)
  void coordinator.close()
  expect(rounds.length).toBeGreaterThan(10)
  expect(rounds.length).toBeLessThan(30)
})

test('a queue begins once its shards have their grants, not once these were sent', async () => {
  const time = new VirtualTime(START_US)
  let applied = false
  const grant = ['1', '1', '10', '0', '5', '']
  const head: Part = {
    run: async (_script, args) =>
      args.length === 3
        ? [2, String(time.nowUs), 0, 2, '0', []]
        : [1, String(time.nowUs), 250, 2, '0', applied ? ['', ''] : [grant, '']],
    recover: async () => {},
  }
  // Its first grant takes longer than a round waits.
  const slow: Part = {
    run: async (_script, args) => {
      if (args[0] === '') return REPORT
      await time.until(time.nowUs + SECOND_US)
      applied = true
      return REPORT
    },
    recover: async () => {},
  }
  const { coordinator, play } = begin(time, head, [slow, answers])
  let startedUs = 0
  void coordinator.started.then(() => {
    startedUs = time.nowUs
  })
  await play(3)
  void coordinator.close()
  expect(startedUs - START_US).toBeGreaterThanOrEqual(SECOND_US)
  expect(startedUs - START_US).toBeLessThan(2 * SECOND_US)
})

test('a queue does not begin without a shard that had hardly a place when it last answered', async () => {
  const time = new VirtualTime(START_US)
  const { part } = headOf(time, () => '0')
  let calls = 0
  const late: Part = {
    run: async () => {
      calls += 1
      if (calls === 1) await time.until(time.nowUs + SECOND_US)
      return REPORT
    },
    recover: async () => {},
  }
  const { coordinator, play } = begin(time, part, [answers, late])
  let startedUs = 0
  void coordinator.started.then(() => {
    startedUs = time.nowUs
  })
  await play(3)
  void coordinator.close()
  expect(startedUs - START_US).toBeGreaterThan(SECOND_US)
})

test('a process with another number of shards stops, and says why once', async () => {
  const time = new VirtualTime(START_US)
  const { rounds, part } = headOf(time, () => '0')
  const refusal = new ShardCountError('mail', 6, 3)
  const { coordinator, errors, play } = begin(time, part, [answers], { agree: () => Promise.reject(refusal) })
  const started = expect(coordinator.started).rejects.toBe(refusal)
  await play(10)
  await started
  expect(errors).toEqual([refusal])
  expect(rounds).toEqual([])
  await expect(coordinator.started).rejects.toBe(refusal)
})
