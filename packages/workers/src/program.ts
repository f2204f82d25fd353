// Worker programs: their settings, health and departures, and what each does with a job.

import { checkRedis, run } from 'sluice-programs'
import type { CommonSettings } from './common-settings.ts'
import { buildWorker } from './running-worker.ts'
import type { WorkerProgram } from './worker-program.ts'

/**
 * Runs a worker program until it is stopped: reads the settings, opens the destination, starts the worker; on SIGTERM
 * or SIGINT lets running jobs finish, gives back the others and closes everything. A second signal ends the process at
 * once.
 * @returns the exit code: 0 stopped on request (or `--help`), 1 could not start or stop, 2 wrong settings or arguments.
 */
export function runProgram<S extends CommonSettings>(
  program: WorkerProgram<S>,
  args: readonly string[] = process.argv.slice(2),
  env: NodeJS.ProcessEnv = process.env,
): Promise<number> {
  const { name, settings } = program
  return run<S>(
    {
      ...{ name, settings, about: aboutText(program), work: 'jobs' },
      check: async (given) => program.check?.(given),
      async start(given, log, closers) {
        const { redisUrl, prefix } = given
        await checkRedis(redisUrl, { role: 'worker', prefix, queueNames: [given.queueName] })
        const destination = await program.open(given, log)
        closers.push(() => destination.close())
        const worker = await buildWorker(given, destination, log, closers)
        const { queueName, rate, capacity, concurrency } = given
        return { ended: worker.run(), facts: { queue: queueName, rate, capacity, concurrency } }
      },
    },
    args,
    env,
  )
}

function aboutText(program: WorkerProgram): string[] {
  return [
    program.purpose,
    '',
    `A job's data: ${program.jobFormat}`,
    'A job is retried when its producer gave it `attempts` (and `backoff`); what cannot succeed fails at once.',
  ]
}
