import { Option } from 'commander'
import { addReason, durationOption, parseFutureTime, parseQueueName } from '../arguments.ts'
import type { AddCommand, Cli } from '../cli.ts'
import { existingWhole } from '../existing-queue.ts'

interface PauseOptions {
  readonly reason: string
  readonly until?: Date
  readonly for?: number
}

export const addCommand: AddCommand = (program, run) => {
  const command = program
    .command('pause')
    .description(
      "Stops departures from a queue; jobs can still be added. With --until or --for, this is the meter's pause, which ends by itself. " +
        "Otherwise it is BullMQ's, which lasts until resume.",
    )
    .argument('<queue>', 'the queue', parseQueueName)
    .addOption(new Option('--until <time>', 'when it ends, ISO 8601').argParser(parseFutureTime).conflicts('for'))
    .addOption(durationOption('--for <duration>', 'for how long'))
    .addHelpText(
      'after',
      `
Examples:
  $ sluice pause emails --until 2026-12-24T18:00:00Z --reason holidays
  $ sluice pause emails --reason incident    # until it is resumed
`,
    )
  addReason(command).action(run(pause))
}

async function pause(cli: Cli, name: string, options: PauseOptions): Promise<void> {
  const { reason } = options
  const queue = await existingWhole(cli, name)
  const until = options.until ?? (options.for === undefined ? undefined : await inFuture(cli, options.for))
  if (until) await queue.pauseUntil(until, { by: cli.by, reason })
  else await queue.pause({ by: cli.by, reason })
  const pausedUntil = until ? await pausedUntilOf(queue) : undefined
  cli.print({ queue: name, paused: !until, pausedUntil, by: cli.by, reason }, () =>
    until ? `${name} is paused until ${pausedUntil?.toISOString()}` : `${name} is paused until it is resumed`,
  )
}

/** All shards have the same pause. */
async function pausedUntilOf(queue: Awaited<ReturnType<typeof existingWhole>>): Promise<Date | undefined> {
  const state = await queue.meter()
  return 'each' in state ? state.each[0]?.pausedUntil : state.pausedUntil
}

/** By Redis's clock, which decides when the pause ends. */
async function inFuture(cli: Cli, ms: number): Promise<Date> {
  const [seconds, micros] = await (await cli.connection()).time()
  return new Date(Number(seconds) * 1000 + Math.floor(Number(micros) / 1000) + ms)
}
