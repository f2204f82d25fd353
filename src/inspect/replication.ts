/** Whether a master or a replica answers. */
export interface Replication {
  /** `unknown` where the user is not allowed to run INFO. */
  readonly role: 'master' | 'replica' | 'unknown'
  /**
   * Of a replica: how long ago it heard from its master, ms in whole seconds; its data is at most that old. undefined
   * where it never did.
   */
  readonly lagMs?: number
}

/** Reads the section `replication` of Redis's INFO. */
export function readReplication(info: string): Replication {
  const field = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1]
  if (field('role') !== 'slave') return { role: 'master' }
  const isUp = field('master_link_status') === 'up'
  const seconds = Number(field(isUp ? 'master_last_io_seconds_ago' : 'master_link_down_since_seconds') ?? -1)
  return seconds < 0 ? { role: 'replica' } : { role: 'replica', lagMs: seconds * 1000 }
}
