import { resolve } from 'node:path'
import { Command } from 'commander'
import { runSuite } from '../../workers/services/run-suite.ts'

const program = new Command('test:torture')
  .description(
    'Random faults for so long: producers and workers that are killed, stopped and replaced, a Redis that is killed and ' +
      'stands still, is emptied and replaced by a replica that lags, connections that are cut, silent and slow, forgotten scripts, changes of the rate, pauses; half of the processes run an older version. Then ' +
      'every job is accounted for.',
  )
  .option('--minutes <minutes>', 'how long faults go on', '30')
  .option('--seed <seed>', 'repeats the sequence of faults of the run that printed it')
  .option('--beside <ref>', 'the older version: a commit, tag or branch (default: the last release, or a day ago)')
  .option(
    '--keep <folder>',
    'keeps the logs of all processes in a new folder, and when the faults and changes of the rate were',
  )
  .parse()
const { minutes, seed, beside, keep } = program.opts<{
  minutes: string
  seed?: string
  beside?: string
  keep?: string
}>()
const env = {
  ...process.env,
  TORTURE_MINUTES: minutes,
  ...(seed === undefined ? {} : { TORTURE_SEED: seed }),
  ...(beside === undefined ? {} : { TORTURE_BESIDE: beside }),
  ...(keep === undefined ? {} : { TORTURE_KEEP: resolve(keep) }),
}
process.exitCode = await runSuite(env, ['--config', 'vitest.slow.config.ts', 'test/slow/torture.test.ts'])
