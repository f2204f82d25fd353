import type { Redis } from 'ioredis'
import { sum } from './statistics.ts'

/** Numbers of INFO by their field, or by a pattern of all before them; 0 for those that are missing. */
export async function infoOf(client: Redis, ...sections: string[]): Promise<(field: string) => number> {
  const info = await client.info(...sections)
  return (field) => Number(new RegExp(`^${field}[:=]([\\d.]+)`, 'm').exec(info)?.[1] ?? 0)
}

export async function usedMemory(client: Redis): Promise<number> {
  return (await infoOf(client, 'memory'))('used_memory')
}

export async function connectedClients(client: Redis): Promise<number> {
  return (await infoOf(client, 'clients'))('connected_clients')
}

/** What a server has done since its start: all of it, and in scripts. µs */
export interface Usage {
  readonly redisUs: number
  readonly scriptUs: number
  readonly calls: number
  /** Published messages, which wake workers. */
  readonly wakes: number
}

const RUN_SCRIPTS = ['eval', 'evalsha', 'fcall']

export async function usageOf(client: Redis): Promise<Usage> {
  const number = await infoOf(client, 'cpu', 'commandstats')
  return {
    redisUs: (number('used_cpu_user') + number('used_cpu_sys')) * 1e6,
    scriptUs: sum(RUN_SCRIPTS.map((command) => number(`cmdstat_${command}:calls=\\d+,usec`))),
    calls: sum(RUN_SCRIPTS.map((command) => number(`cmdstat_${command}:calls`))),
    wakes: number('cmdstat_publish:calls'),
  }
}

/** What one unit of some work takes: a job, a decision, a request. */
export interface Cost extends Usage {
  readonly perSecond: number
  /** CPU of the process that does it. */
  readonly clientUs: number
}

/** Some work that was done, and what the process that did it says of it. Default: what this one says. */
export interface Done {
  readonly units: number
  readonly elapsedMs?: number
  readonly clientUs?: number
}

export async function costOf(client: Redis, work: () => Promise<Done>): Promise<Cost> {
  const before = await usageOf(client)
  const [startedMs, cpuBefore] = [performance.now(), process.cpuUsage()]
  const done = await work()
  const { elapsedMs = performance.now() - startedMs, units } = done
  const { user, system } = process.cpuUsage(cpuBefore)
  const after = await usageOf(client)
  const each = (field: keyof Usage) => (after[field] - before[field]) / units
  return {
    perSecond: (units / elapsedMs) * 1000,
    clientUs: (done.clientUs ?? user + system) / units,
    ...{ redisUs: each('redisUs'), scriptUs: each('scriptUs'), calls: each('calls'), wakes: each('wakes') },
  }
}

export function describeCost({ perSecond, clientUs, redisUs, scriptUs, calls }: Cost): string {
  const redis = `Redis ${redisUs.toFixed(1)} µs (scripts ${scriptUs.toFixed(1)})`
  return `${perSecond.toFixed(0)}/s, client ${clientUs.toFixed(1)} µs, ${redis}, ${calls.toFixed(2)} calls`
}
