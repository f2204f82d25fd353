import type { Bench, Figure, Row } from '../figure.ts'
import { LIMITED_SERVERS, type LimitedServer } from '../gateway/protocol.ts'
import { describeCost, medianOf } from '../gateway/report.ts'
import { type ServerCost, ServerProcess } from '../gateway/server-process.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { atLeast, describeRatio, ratioOf } from '../measure/ratio.ts'

const ASKED = 1.2
const SECONDS = 2
const ROUNDS = 11
/** Each key calls over its own connection. */
const KEYS = 100
const PEERS = ['@fastify/rate-limit', 'express-rate-limit'] as const

/** The limits of the two loads: nearly all calls pass, or almost none. */
const LOADS = { allowed: 1_000_000_000, refused: 1 } as const
type Load = keyof typeof LOADS

type Measured = readonly Round<LimitedServer, ServerCost>[]

async function measure(bench: Bench, load: Load): Promise<Measured> {
  const servers = new Map<LimitedServer, ServerProcess>()
  for (const server of LIMITED_SERVERS) {
    servers.set(server, await ServerProcess.start(bench, { server, queue: '', capacity: 0, perMinute: LOADS[load] }))
  }
  try {
    const callOf = async (server: LimitedServer) => {
      await bench.client.flushdb()
      const cost = await (servers.get(server) as ServerProcess).call('/', {
        connections: KEYS,
        seconds: SECONDS,
        method: 'GET',
        connectionKeyOf: (connection) => `caller-${connection}`,
      })
      // A new window may begin during the calls.
      const most = load === 'allowed' ? { ok: cost.ok, refused: 0 } : { ok: 2 * KEYS, refused: cost.refused }
      if (cost.other > 0 || cost.ok > most.ok || cost.refused > most.refused) {
        throw new Error(`${server}, ${load}: ${cost.ok} passed, ${cost.refused} refused, ${cost.other} failed`)
      }
      return cost
    }
    return await rounds(bench.quick, LIMITED_SERVERS, callOf, ROUNDS)
  } finally {
    for (const server of servers.values()) await server.stop()
  }
}

function row(ours: LimitedServer, load: Load, measured: Measured): Row {
  const ratio = ratioOf(
    measured.map((round) => round[ours].perSecond / Math.max(...PEERS.map((peer) => round[peer].perSecond))),
  )
  const costs = (server: LimitedServer) => describeCost(medianOf(measured.map((round) => round[server])))
  // Express itself is slower than a limited route of Fastify.
  const isAsked = ours === 'rateLimit on Fastify'
  return {
    setup: `${ours}, ${load}`,
    ...(isAsked && atLeast(ratio, ASKED)),
    reached: `${describeRatio(ratio)} of the faster, ${costs(ours)}`,
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
