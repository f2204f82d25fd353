import type { Redis } from 'ioredis'

const SETS = ['completed', 'failed', 'delayed', 'prioritized', 'waiting-children']
const LISTS = ['active', 'wait', 'paused']
const PAGE = 1000
/**
 * A longer list is not read. A shorter one is read once as a whole: looking up each job would scan it each time.
 */
const MAX_LIST = 500_000
const BATCH = 500

/** Which of these jobs are in a list or set of their queue. Undefined if the queue is too long to be read. */
export async function placedJobs(
  client: Redis,
  base: string,
  ids: readonly string[],
): Promise<Set<string> | undefined> {
  const placed = new Set<string>()
  for (let start = 0; start < ids.length; start += BATCH) {
    const batch = ids.slice(start, start + BATCH)
    const scores = await answers(
      client,
      batch.flatMap((id) => SETS.map((set) => ['zscore', base + set, id])),
    )
    for (const [i, id] of batch.entries()) {
      if (scores.slice(i * SETS.length, (i + 1) * SETS.length).some((score) => score !== null)) placed.add(id)
    }
  }
  const open = new Set(ids.filter((id) => !placed.has(id)))
  if (open.size === 0) return placed
  for (const list of LISTS) {
    if ((await client.llen(base + list)) > MAX_LIST) return undefined
    for (const id of await wholeList(client, base + list)) if (open.has(id)) placed.add(id)
  }
  return placed
}

/** The ids of a list, read from the end at which jobs leave: new ones are added at the other end. */
export async function wholeList(client: Redis, key: string): Promise<string[]> {
  const ids: string[] = []
  for (let end = -1; ; end -= PAGE) {
    const page = await client.lrange(key, end - PAGE + 1, end)
    ids.push(...page)
    if (page.length < PAGE) return ids
  }
}

/** The replies to many commands, in few round trips. */
export async function answers(client: Redis, commands: readonly (readonly string[])[]): Promise<unknown[]> {
  const found: unknown[] = []
  for (let start = 0; start < commands.length; start += BATCH) {
    const replies = await client.pipeline(commands.slice(start, start + BATCH).map((command) => [...command])).exec()
    for (const [error, reply] of replies ?? []) {
      if (error) throw error
      found.push(reply)
    }
  }
  return found
}
