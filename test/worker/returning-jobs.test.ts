import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { type HeldJob, heldJobs } from '../../src/departure/held-job.ts'
import { readDeparture } from '../../src/departure/reply.ts'
import { ReturningJobs } from '../../src/worker/returning-jobs.ts'
import { gate } from './support.ts'

/** Jobs of one grant, with their slots, µs. */
function granted(slotsUs: Readonly<Record<string, number>>): HeldJob[] {
  const grants = Object.entries(slotsUs).map(([id, slot]) => [[], id, String(slot), '1', '0', '', ''])
  return heldJobs(readDeparture([1, '1000', 0, grants, 'full', '', '', 0, 0, []]))
}

test('jobs that are late in one turn go back as they were granted, whichever is found late first', async () => {
  const back: string[][] = []
  const host = {
    giveBack: async (jobs: readonly HeldJob[]) => void back.push(jobs.map(({ id }) => id)),
  }
  const returning = new ReturningJobs(
    host,
    () => {},
    (error) => expect(error).toBeUndefined(),
  )
  const [a, b, c, d] = granted({ a: 1000, b: 2000, c: 2000, d: 2000 }) as [HeldJob, HeldJob, HeldJob, HeldJob]
  // As many as fit begin while they are in time; the processors of the first two are reached too late.
  await Promise.all([c, d, a, b].map((job) => returning.late(job)))
  expect(back).toEqual([['a', 'b', 'c', 'd']])
})

test('jobs are on their way until Redis has them, or it is known why not', async () => {
  const error = new Error('connection lost')
  const [first, second] = [gate(), gate()]
  const calls = [first.opened, second.opened.then(() => Promise.reject(error))]
  const left: boolean[] = []
  const host = {
    giveBack: (_jobs: readonly HeldJob[], leaving: boolean) => {
      left.push(leaving)
      return calls.shift() ?? Promise.resolve()
    },
  }
  const happened: unknown[] = []
  const returning = new ReturningJobs(
    host,
    () => happened.push('back'),
    (error) => happened.push(error),
  )
  expect(returning.pending).toBe(false)
  returning.start(granted({ a: 1 }))
  returning.start(granted({ b: 2 }), true)
  first.open()
  await expect.poll(() => happened).toEqual(['back'])
  let areBack = false
  const back = returning.allBack().then(() => {
    areBack = true
  })
  await nextTurn()
  expect([returning.pending, areBack]).toEqual([true, false])
  second.open()
  await back
  expect(happened).toEqual(['back', error, 'back'])
  expect(returning.pending).toBe(false)
  // What is late goes back from a worker that stays.
  await returning.late(granted({ c: 3 })[0] as HeldJob)
  expect(left).toEqual([false, true, false])
})
