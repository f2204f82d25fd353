import type { AddCommand } from './cli.ts'

/** A command of the program: only the requested one is loaded. */
export interface ListedCommand {
  readonly name: string
  /** A line of `sluice --help`. */
  readonly summary: string
  /** Loads none of the packages that only this command needs: its help, and completions, do without them. */
  load(): Promise<AddCommand>
}

/** In the order of `sluice --help`. */
export const COMMANDS: readonly ListedCommand[] = [
  {
    name: 'status',
    summary: 'the current state of queues',
    load: async () => (await import('./commands/status.ts')).addStatusCommand,
  },
  {
    name: 'top',
    summary: 'queues and workers, live',
    load: async () => (await import('./commands/top.ts')).addTopCommand,
  },
  {
    name: 'explain',
    summary: 'why a job has not started, and when it will',
    load: async () => (await import('./commands/explain.ts')).addExplainCommand,
  },
  {
    name: 'shape',
    summary: 'show and change the shape of a queue',
    load: async () => (await import('./commands/shape.ts')).addShapeCommand,
  },
  {
    name: 'pause',
    summary: 'stop departures from a queue',
    load: async () => (await import('./commands/pause.ts')).addPauseCommand,
  },
  {
    name: 'resume',
    summary: 'lift the pauses of a queue',
    load: async () => (await import('./commands/resume.ts')).addResumeCommand,
  },
  {
    name: 'group',
    summary: 'show and change single groups of a queue',
    load: async () => (await import('./commands/group.ts')).addGroupCommand,
  },
  {
    name: 'key',
    summary: 'show and change what limits by keys allow',
    load: async () => (await import('./commands/key.ts')).addKeyCommand,
  },
  {
    name: 'limits',
    summary: 'show limits, reset and block their keys',
    load: async () => (await import('./commands/limits.ts')).addLimitsCommand,
  },
  {
    name: 'shards',
    summary: 'change the number of shards of a queue',
    load: async () => (await import('./commands/shards.ts')).addShardsCommand,
  },
  {
    name: 'enqueue',
    summary: 'add the jobs of a file',
    load: async () => (await import('./commands/enqueue.ts')).addEnqueueCommand,
  },
  {
    name: 'jobs',
    summary: 'show jobs, list and retry failed ones',
    load: async () => (await import('./commands/jobs.ts')).addJobsCommand,
  },
  {
    name: 'cancel',
    summary: 'cancel jobs that wait or run',
    load: async () => (await import('./commands/cancel.ts')).addCancelCommand,
  },
  {
    name: 'redrive',
    summary: 'put the jobs of dead letters back',
    load: async () => (await import('./commands/redrive.ts')).addRedriveCommand,
  },
  {
    name: 'dead',
    summary: 'list, show and drop dead letters',
    load: async () => (await import('./commands/dead.ts')).addDeadCommand,
  },
  {
    name: 'record',
    summary: 'record the arrivals of a queue',
    load: async () => (await import('./commands/record.ts')).addRecordCommand,
  },
  {
    name: 'simulate',
    summary: 'predict waits and refusals under other shapes',
    load: async () => (await import('./commands/simulate.ts')).addSimulateCommand,
  },
  {
    name: 'audit',
    summary: 'check the departures of a queue against its bounds',
    load: async () => (await import('./commands/audit.ts')).addAuditCommand,
  },
  {
    name: 'doctor',
    summary: 'check Redis, the queues and the workers',
    load: async () => (await import('./commands/doctor.ts')).addDoctorCommand,
  },
  {
    name: 'functions',
    summary: 'load, list and delete functions in Redis',
    load: async () => (await import('./commands/functions.ts')).addFunctionsCommand,
  },
  {
    name: 'worker',
    summary: 'run a worker program: email, db-writes or http',
    load: async () => (await import('./commands/worker.ts')).addWorkerCommand,
  },
  {
    name: 'gateway',
    summary: 'accept jobs over HTTP for bounded queues',
    load: async () => (await import('./commands/gateway.ts')).addGatewayCommand,
  },
  {
    name: 'metrics',
    summary: 'serve metrics of the queues to Prometheus',
    load: async () => (await import('./commands/metrics.ts')).addMetricsCommand,
  },
  {
    name: 'dashboard',
    summary: 'queues and workers in a browser',
    load: async () => (await import('./commands/dashboard.ts')).addDashboardCommand,
  },
]
