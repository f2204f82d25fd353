import type { Redis } from 'ioredis'
import { type InfoFields, infoFields } from 'sluice/internal'

export async function serverInfo(client: Redis, section: string): Promise<InfoFields> {
  return infoFields(await client.info(section))
}

/** A setting of the server; undefined if it has none of this name. */
export async function serverSetting(client: Redis, name: string): Promise<string | undefined> {
  const reply = (await client.config('GET', name)) as string[]
  return reply[1]
}
