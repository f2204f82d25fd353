import type { Bench, Figure, Row } from '../figure.ts'
import { JOB_BODY } from '../gateway/protocol.ts'
import { describeCost, medianOf } from '../gateway/report.ts'
import { type ServerCost, ServerProcess } from '../gateway/server-process.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { atMost, describeRatio, ratioOf } from '../measure/ratio.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'

const ASKED = 0.5
const CONNECTIONS = 50
const SECONDS = 4
const QUICK_SECONDS = 1

const LOADS = ['admitted', 'refused'] as const
type Load = (typeof LOADS)[number]
type Measured = readonly Round<Load, ServerCost>[]

async function measure(bench: Bench): Promise<Measured> {
  const free = await makeQueue(bench, 'sluice', 'gateway')
  // No worker takes the job that fills it.
  const full = await makeQueue(bench, 'sluice', 'gateway', { capacity: 1, rate: '1/min' })
  await addJobs(full, 1)
  const queues = { admitted: free, refused: full }
  const servers = {
    admitted: await ServerProcess.start(bench, {
      server: 'gateway',
      queue: free.name,
      capacity: 10_000_000,
      perMinute: 0,
    }),
    refused: await ServerProcess.start(bench, { server: 'gateway', queue: full.name, capacity: 1, perMinute: 0 }),
  }
  try {
    return await rounds(bench.quick, LOADS, async (load) => {
      const seconds = bench.quick ? QUICK_SECONDS : SECONDS
      const calls = { connections: CONNECTIONS, seconds, method: 'POST', body: JOB_BODY } as const
      const cost = await servers[load].call(`/queues/${queues[load].name}/jobs`, calls)
      const wrong = cost.other + (load === 'refused' ? cost.ok : cost.refused)
      if (wrong > 0) throw new Error(`${load}: ${cost.ok} let in, ${cost.refused} refused, ${cost.other} failed`)
      if (load === 'admitted') await free.drain()
      return cost
    })
  } finally {
    for (const server of Object.values(servers)) await server.stop()
    for (const queue of Object.values(queues)) await removeQueue(queue)
  }
}

export const gatewayRefused: Figure = {
  name: 'gateway-refused',
  title:
    `CPU of the gateway's process per refused POST over that per admitted one, ${CONNECTIONS} connections: median of ` +
    'interleaved rounds, the first discarded',
  run: async (bench): Promise<Row[]> => {
    const measured = await measure(bench)
    const ratio = ratioOf(measured.map(({ refused, admitted }) => refused.processUs / admitted.processUs))
    const costs = (load: Load) => describeCost(medianOf(measured.map((round) => round[load])))
    return [
      {
        setup: 'a full queue',
        ...atMost(ratio, ASKED),
        reached: `${describeRatio(ratio)}, ${costs('refused')}`,
        beside: `admitted: ${costs('admitted')}`,
        values: { ratio, rounds: measured },
      },
    ]
  },
}
