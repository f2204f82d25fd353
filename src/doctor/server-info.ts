import type { Redis } from 'ioredis'

/** Fields of INFO by name. */
export type ServerInfo = ReadonlyMap<string, string>

export async function serverInfo(client: Redis, section: string): Promise<ServerInfo> {
  const text = await client.info(section)
  const lines = text.split(/\r?\n/).filter((line) => line.includes(':') && !line.startsWith('#'))
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]))
}

/** A setting of the server; undefined if it has none of this name. */
export async function serverSetting(client: Redis, name: string): Promise<string | undefined> {
  const reply = (await client.config('GET', name)) as string[]
  return reply[1]
}
