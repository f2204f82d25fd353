import type { Replication } from '../inspect/replication.ts'
import type { Cli } from './cli.ts'
import { formatDuration } from './duration.ts'

/** What is read from a replica may be old: how old, where it is one. */
export interface ReadFrom {
  readonly read?: Replication
}

/** With `--read-url` asks that Redis what it is, and notes its lag. */
export async function replicaNote(cli: Cli): Promise<ReadFrom> {
  if (cli.options.readUrl === undefined) return {}
  const read = await cli.inspector().replication()
  if (read.role === 'replica' && !cli.options.json) {
    cli.note(
      `read from a replica, ${read.lagMs === undefined ? 'lag unknown' : `${formatDuration(read.lagMs)} behind`}`,
    )
  }
  return { read }
}
