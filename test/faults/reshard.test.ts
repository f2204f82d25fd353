import { expect, test } from 'vitest'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { OwnCluster } from './support/own-cluster.ts'
import { Producer } from './support/producer.ts'

const RATE = 300
const BUCKET = { intervalUs: 1_000_000 / RATE, burst: 5 }
const MOVES = 4
/** So that a move is several commands. */
const BACKLOG = 500
const PREFIX = '{b}'

// Fault table, row 22.
test(`the slot of a queue moves ${MOVES} times under load: no caller has an error, each job runs once, the bound holds`, async () => {
  const cluster = await OwnCluster.start()
  const fleet = new Fleet()
  const shape = { rate: `${RATE}/s`, burst: BUCKET.burst }
  const options = { prefix: PREFIX }
  const queues = [1, 2].map(() => fleet.queue('mail', { ...options, connection: cluster.connect(), shape }))
  await Promise.all(queues.map((queue) => queue.waitUntilReady()))
  const backlog = Array.from({ length: BACKLOG }, () => ({ name: 'job', data: {} }))
  const accepted = idsOf((await queues[0]?.addBulk(backlog)) ?? [])
  const producers = queues.map((queue, i) => new Producer(queue, { everyMs: 5, name: `p${i}-` }))
  for (let i = 0; i < 2; i++) fleet.worker('mail', { ...options, connection: cluster.connect(), concurrency: 20 })
  let place = await cluster.placeOf(PREFIX)
  let gapMs = 0
  for (let move = 0; move < MOVES; move++) {
    const before = fleet.departures.length
    await fleet.until(() => fleet.departures.length >= before + 100)
    const begunMs = performance.now()
    await cluster.beginMove(place)
    await cluster.moveKeys(place)
    await cluster.endMove(place)
    const moved = fleet.departures.length
    await fleet.until(() => fleet.departures.length > moved)
    gapMs = Math.max(gapMs, performance.now() - begunMs)
    place = { ...place, from: place.to, to: place.from }
  }
  for (const producer of producers) await producer.stop()
  accepted.push(...producers.flatMap((producer) => producer.accepted))
  await fleet.until(() => fleet.completed.length >= accepted.length)
  process.stdout.write(
    `${accepted.length} accepted in ${MOVES} moves, ran ${fleet.departures.length} times, gap at most ${Math.round(gapMs)} ms\n`,
  )
  expect(producers.flatMap((producer) => producer.refused)).toEqual([])
  expect(fleet.completed.toSorted()).toEqual(accepted.toSorted())
  expect(fleet.departures).toHaveLength(accepted.length)
  expect({ losses: fleet.losses, failed: fleet.failed, errors: fleet.errors }).toEqual({
    losses: [],
    failed: [],
    errors: [],
  })
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
})
