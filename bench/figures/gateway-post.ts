import type { Bench, Figure, Row } from '../figure.ts'
import { type DoorCost, OpenedDoor } from '../gateway/opened-door.ts'
import { JOB_BODY, JOB_DOORS, type JobDoor } from '../gateway/protocol.ts'
import { describeDoor, medianOf } from '../gateway/report.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { median } from '../measure/statistics.ts'
import { makeQueue, removeQueue } from '../queues.ts'

const ASKED = 0.9
const CONNECTIONS = [1, 10, 100]
const SECONDS = 2
const QUICK_SECONDS = 1
const ROUNDS = 13

type Measured = readonly Round<JobDoor, DoorCost>[]

async function measure(bench: Bench, connections: number): Promise<Measured> {
  const queue = await makeQueue(bench, 'sluice', 'gateway')
  const open = { queue: queue.name, capacity: 10_000_000, perMinute: 0 }
  const doors = new Map<JobDoor, OpenedDoor>()
  for (const door of JOB_DOORS) doors.set(door, await OpenedDoor.start(bench, { ...open, door }))
  const seconds = bench.quick ? QUICK_SECONDS : SECONDS
  try {
    const callOf = async (door: JobDoor) => {
      const calls = { connections, seconds, method: 'POST', body: JOB_BODY, fine: true } as const
      const cost = await (doors.get(door) as OpenedDoor).call(`/queues/${queue.name}/jobs`, calls)
      if (cost.refused + cost.other > 0) throw new Error(`${door}: ${cost.refused} refused, ${cost.other} failed`)
      // Each measurement starts with an empty queue.
      await queue.drain()
      return cost
    }
    return await rounds(bench.quick, JOB_DOORS, callOf, ROUNDS)
  } finally {
    for (const door of doors.values()) await door.stop()
    await removeQueue(queue)
  }
}

function row(connections: number, measured: Measured): Row {
  const ratio = (of: (round: Round<JobDoor, DoorCost>) => number) => median(measured.map(of))
  const over = (peer: JobDoor) => ({
    perSecond: ratio((round) => round.gateway.perSecond / round[peer].perSecond),
    p99: ratio((round) => round[peer].p99 / round.gateway.p99),
  })
  const of = (door: JobDoor) => describeDoor(medianOf(measured.map((round) => round[door])))
  const same = over('queue.add')
  const alone = over('queue.add, the id alone')
  return {
    setup: `${connections} connections`,
    asked: `>= ${ASKED} of both`,
    reached:
      `${same.perSecond.toFixed(2)} of the rate, ${same.p99.toFixed(2)} of the p99 (${of('gateway')}); over the id alone: ` +
      `${alone.perSecond.toFixed(2)}, ${alone.p99.toFixed(2)}`,
    ok: same.perSecond >= ASKED && same.p99 >= ASKED,
    beside: `${of('queue.add')}; the id alone: ${of('queue.add, the id alone')}`,
    values: { same, alone, rounds: measured },
  }
}

export const gatewayPost: Figure = {
  name: 'gateway-post',
  title:
    'POST of one job to the gateway (Fastify) over a route of Fastify that calls queue.add of BullMQ and gives the same ' +
    'answer, and over one that tells the id alone: requests per second and p99, median of interleaved rounds, the first ' +
    'discarded; CPU of the door and of Redis per request',
  run: async (bench) => {
    const rows: Row[] = []
    for (const connections of CONNECTIONS) rows.push(row(connections, await measure(bench, connections)))
    return rows
  },
}
