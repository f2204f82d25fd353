import type { Bench, Figure, Row } from '../figure.ts'
import { JOB_BODY, JOB_SERVERS, type JobServer } from '../gateway/protocol.ts'
import { describeCost, medianOf } from '../gateway/report.ts'
import { type ServerCost, ServerProcess } from '../gateway/server-process.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { atLeast, describeRatio, type Ratio, ratioOf } from '../measure/ratio.ts'
import { makeQueue, removeQueue } from '../queues.ts'

const ASKED = 0.9
const CONNECTIONS = [1, 10, 100]
const SECONDS = 2
const QUICK_SECONDS = 1
const ROUNDS = 13

type Measured = readonly Round<JobServer, ServerCost>[]

async function measure(bench: Bench, connections: number): Promise<Measured> {
  const queue = await makeQueue(bench, 'sluice', 'gateway')
  const open = { queue: queue.name, capacity: 10_000_000, perMinute: 0 }
  const servers = new Map<JobServer, ServerProcess>()
  for (const server of JOB_SERVERS) servers.set(server, await ServerProcess.start(bench, { ...open, server }))
  const seconds = bench.quick ? QUICK_SECONDS : SECONDS
  try {
    const callOf = async (server: JobServer) => {
      const calls = { connections, seconds, method: 'POST', body: JOB_BODY, fine: true } as const
      const cost = await (servers.get(server) as ServerProcess).call(`/queues/${queue.name}/jobs`, calls)
      if (cost.refused + cost.other > 0) throw new Error(`${server}: ${cost.refused} refused, ${cost.other} failed`)
      // Each measurement starts with an empty queue.
      await queue.drain()
      return cost
    }
    return await rounds(bench.quick, JOB_SERVERS, callOf, ROUNDS)
  } finally {
    for (const server of servers.values()) await server.stop()
    await removeQueue(queue)
  }
}

function row(connections: number, measured: Measured): Row {
  const ratio = (of: (round: Round<JobServer, ServerCost>) => number) => ratioOf(measured.map(of))
  const over = (peer: JobServer) => ({
    perSecond: ratio((round) => round.gateway.perSecond / round[peer].perSecond),
    p99: ratio((round) => round[peer].p99 / round.gateway.p99),
  })
  const of = (server: JobServer) => describeCost(medianOf(measured.map((round) => round[server])))
  const same = over('queue.add')
  const alone = over('queue.add, the id alone')
  return {
    setup: `${connections} connections`,
    asked: `>= ${ASKED} of both`,
    ok: ofBoth(same.perSecond, same.p99),
    reached:
      `${describeRatio(same.perSecond)} of the rate, ${describeRatio(same.p99)} of the p99, ${of('gateway')}; over the id ` +
      `alone: ${describeRatio(alone.perSecond)}, ${describeRatio(alone.p99)}`,
    beside: `${of('queue.add')}; the id alone: ${of('queue.add, the id alone')}`,
    values: { same, alone, rounds: measured },
  }
}

function ofBoth(one: Ratio, other: Ratio): boolean | 'within its spread' {
  const oks = [one, other].map((ratio) => atLeast(ratio, ASKED).ok)
  return oks.includes(false) ? false : oks.includes('within its spread') ? 'within its spread' : true
}

export const gatewayPost: Figure = {
  name: 'gateway-post',
  title:
    'POST of one job to the gateway (Fastify) over a route of Fastify that calls queue.add of BullMQ and gives the same ' +
    'answer, and over one that returns only the id: requests per second and p99, median of interleaved rounds, the first ' +
    'discarded; CPU of the server and of Redis per request',
  run: async (bench) => {
    const rows: Row[] = []
    for (const connections of CONNECTIONS) rows.push(row(connections, await measure(bench, connections)))
    return rows
  },
}
