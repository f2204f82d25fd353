import type { AddCommand } from './cli.ts'

/** A command of the program: only the requested one is loaded. */
export interface ListedCommand {
  readonly name: string
  /** A line of `sluice --help`. */
  readonly summary: string
  /** Loads none of the packages that only this command needs: its help, and completions, do without them. */
  load(): Promise<{ readonly addCommand: AddCommand }>
}

/** In the order of `sluice --help`. */
const LISTED: Readonly<Record<string, readonly [summary: string, load: ListedCommand['load']]>> = {
  status: ['the current state of queues', () => import('./commands/status.ts')],
  top: ['queues and workers, live', () => import('./commands/top.ts')],
  explain: ['why a job has not started, and when it will', () => import('./commands/explain.ts')],
  shape: ['show and change the shape of a queue', () => import('./commands/shape.ts')],
  pause: ['stop departures from a queue', () => import('./commands/pause.ts')],
  resume: ['lift the pauses of a queue', () => import('./commands/resume.ts')],
  group: ['show and change single groups of a queue', () => import('./commands/group.ts')],
  key: ['show and change what limits by keys allow', () => import('./commands/key.ts')],
  limits: ['show limits, reset and block their keys', () => import('./commands/limits.ts')],
  shards: ['change the number of shards of a queue', () => import('./commands/shards.ts')],
  enqueue: ['add the jobs of a file', () => import('./commands/enqueue.ts')],
  jobs: ['show jobs, list and retry failed ones', () => import('./commands/jobs.ts')],
  cancel: ['cancel jobs that wait or run', () => import('./commands/cancel.ts')],
  redrive: ['put the jobs of dead letters back', () => import('./commands/redrive.ts')],
  dead: ['list, show and drop dead letters', () => import('./commands/dead.ts')],
  record: ['record the arrivals of a queue', () => import('./commands/record.ts')],
  simulate: ['predict waits and refusals under other shapes', () => import('./commands/simulate.ts')],
  audit: ['check the departures of a queue against its bounds', () => import('./commands/audit.ts')],
  doctor: ['check Redis, the queues and the workers', () => import('./commands/doctor.ts')],
  functions: ['load, list and delete functions in Redis', () => import('./commands/functions.ts')],
  worker: ['run a worker program: email, db-writes or http', () => import('./commands/worker.ts')],
  gateway: ['accept jobs over HTTP for bounded queues', () => import('./commands/gateway.ts')],
  metrics: ['serve metrics of the queues to Prometheus', () => import('./commands/metrics.ts')],
  dashboard: ['queues and workers in a browser', () => import('./commands/dashboard.ts')],
}

export const COMMANDS: readonly ListedCommand[] = Object.entries(LISTED).map(([name, [summary, load]]) => {
  return { name, summary, load }
})
