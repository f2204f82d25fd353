import type { Redis } from 'ioredis'

/** The CPU that the server has used since its start, µs. */
export async function redisCpuUs(client: Redis): Promise<number> {
  const info = await client.info('cpu')
  const seconds = (name: string): number => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)?.[1] ?? 0)
  return (seconds('used_cpu_user') + seconds('used_cpu_sys')) * 1e6
}
