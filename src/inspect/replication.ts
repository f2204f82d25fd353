/** Which side of a replication the answers come from. */
export interface Replication {
  /** `unknown` where the user may not ask. */
  readonly role: 'master' | 'replica' | 'unknown'
  /**
   * Of a replica: how long ago it heard from its master, ms in whole seconds: what it shows is at most so old. undefined where
   * it never did.
   */
  readonly lagMs?: number
}

/** Reads Redis's INFO of replication. */
export function readReplication(info: string): Replication {
  const field = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1]
  if (field('role') !== 'slave') return { role: 'master' }
  const isUp = field('master_link_status') === 'up'
  const seconds = Number(field(isUp ? 'master_last_io_seconds_ago' : 'master_link_down_since_seconds') ?? -1)
  return seconds < 0 ? { role: 'replica' } : { role: 'replica', lagMs: seconds * 1000 }
}
