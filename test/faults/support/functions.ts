import type { Redis } from 'ioredis'

/** The names of a server's libraries, sorted. */
export async function librariesOn(admin: Redis): Promise<string[]> {
  const replies = (await admin.call('FUNCTION', 'LIST')) as string[][]
  return replies.map((reply) => reply[reply.indexOf('library_name') + 1] as string).toSorted()
}

/** How often commands ran since the server counts anew, without those that failed. */
export async function runs(admin: Redis): Promise<{ functions: number; texts: number; loads: number }> {
  const info = await admin.info('commandstats')
  const ran = (command: string) => {
    const [, calls = 0, failed = 0] =
      new RegExp(`cmdstat_${command}:calls=(\\d+).*failed_calls=(\\d+)`).exec(info) ?? []
    return Number(calls) - Number(failed)
  }
  return { functions: ran('fcall'), texts: ran('eval') + ran('evalsha'), loads: ran('function\\|load') }
}
