import type { Redis } from 'ioredis'

/** CPU time of the server since its start, µs. */
export async function redisCpuUs(client: Redis): Promise<number> {
  const info = await client.info('cpu')
  const seconds = (name: string): number => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)?.[1] ?? 0)
  return (seconds('used_cpu_user') + seconds('used_cpu_sys')) * 1e6
}

/** Script calls and their time on the server since its start. */
export interface ScriptUsage {
  readonly calls: number
  readonly us: number
}

export async function scriptUsage(client: Redis): Promise<ScriptUsage> {
  const info = await client.info('commandstats')
  const found = [...info.matchAll(/^cmdstat_(?:eval(?:sha)?|fcall):calls=(\d+),usec=(\d+)/gm)]
  const sumOf = (group: number) => found.reduce((total, match) => total + Number(match[group]), 0)
  return { calls: sumOf(1), us: sumOf(2) }
}
