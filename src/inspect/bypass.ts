import type { Bypass, QueueClient, WorkerStatus } from './queue-status.ts'

/** Starts past the meter count as continuing for this long after the last finding. As in `lua/reports/bypass.lua`. */
const LASTS_US = 60_000_000
/** A shorter time is too short for an estimate. */
const LEAST_US = 1_000_000

/** @param meter the hash `…:meta:meter` */
export function bypassOf(
  meter: Readonly<Record<string, string>>,
  workers: readonly WorkerStatus[],
  nowUs: number,
): Bypass | undefined {
  const number = (field: string) => Number(meter[field] ?? 0)
  const atUs = number('bypassedAt')
  if (atUs === 0 || nowUs - atUs > LASTS_US) return undefined
  const forUs = atUs - number('bypassedFrom')
  const count = number('bypassedTotal') - number('bypassedBase')
  return {
    at: new Date(atUs / 1000),
    jobId: meter.bypassedJob ?? '',
    perSecond: forUs >= LEAST_US ? (count * 1_000_000) / forUs : undefined,
    clients: uniqueClients(workers.flatMap(({ bypassedBy }) => bypassedBy)),
  }
}

export function uniqueClients(clients: readonly QueueClient[]): QueueClient[] {
  return [...new Map(clients.map((client) => [client.address, client])).values()]
}
