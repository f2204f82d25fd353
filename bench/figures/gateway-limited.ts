import type { Bench, Figure, Row } from '../figure.ts'
import { type DoorCost, OpenedDoor } from '../gateway/opened-door.ts'
import { LIMITED_DOORS, type LimitedDoor } from '../gateway/protocol.ts'
import { describeDoor, medianOf } from '../gateway/report.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { median } from '../measure/statistics.ts'

const ASKED = 1.2
const SECONDS = 2
const ROUNDS = 11
/** Each key calls over its own connection. */
const KEYS = 100
const PEERS = ['@fastify/rate-limit', 'express-rate-limit'] as const

/** The limits of the two loads: nearly all calls pass, or almost none. */
const LOADS = { allowed: 1_000_000_000, refused: 1 } as const
type Load = keyof typeof LOADS

type Measured = readonly Round<LimitedDoor, DoorCost>[]

async function measure(bench: Bench, load: Load): Promise<Measured> {
  const doors = new Map<LimitedDoor, OpenedDoor>()
  for (const door of LIMITED_DOORS) {
    doors.set(door, await OpenedDoor.start(bench, { door, queue: '', capacity: 0, perMinute: LOADS[load] }))
  }
  try {
    const callOf = async (door: LimitedDoor) => {
      await bench.client.flushdb()
      const cost = await (doors.get(door) as OpenedDoor).call('/', {
        connections: KEYS,
        seconds: SECONDS,
        method: 'GET',
        connectionKeyOf: (connection) => `caller-${connection}`,
      })
      // A new window may begin during the calls.
      const most = load === 'allowed' ? { ok: cost.ok, refused: 0 } : { ok: 2 * KEYS, refused: cost.refused }
      if (cost.other > 0 || cost.ok > most.ok || cost.refused > most.refused) {
        throw new Error(`${door}, ${load}: ${cost.ok} passed, ${cost.refused} refused, ${cost.other} failed`)
      }
      return cost
    }
    return await rounds(bench.quick, LIMITED_DOORS, callOf, ROUNDS)
  } finally {
    for (const door of doors.values()) await door.stop()
  }
}

function row(ours: LimitedDoor, load: Load, measured: Measured): Row {
  const ratio = median(
    measured.map((round) => round[ours].perSecond / Math.max(...PEERS.map((peer) => round[peer].perSecond))),
  )
  const costs = (door: LimitedDoor) => describeDoor(medianOf(measured.map((round) => round[door])))
  // Express itself is slower than a limited route of Fastify.
  const asked = ours === 'rateLimit on Fastify'
  return {
    setup: `${ours}, ${load}`,
    ...(asked && { asked: `>= ${ASKED} of the faster`, ok: ratio >= ASKED }),
    reached: `${ratio.toFixed(2)} (${costs(ours)})`,
    beside: PEERS.map((peer) => `${peer} ${costs(peer)}`).join('; '),
    values: { ratio, rounds: measured },
  }
}

export const gatewayLimited: Figure = {
  name: 'gateway-limited',
  title:
    `A limited route, a fixed window of a minute in Redis for each of ${KEYS} API keys, a connection each: requests ` +
    'per second over the faster of @fastify/rate-limit and express-rate-limit, median of interleaved rounds, the first discarded',
  run: async (bench) => {
    const rows: Row[] = []
    for (const load of ['allowed', 'refused'] as const) {
      const measured = await measure(bench, load)
      rows.push(row('rateLimit on Fastify', load, measured), row('rateLimit on Express', load, measured))
    }
    return rows
  },
}
