import { QueueEvents } from 'bullmq'
import { onTestFinished } from 'vitest'
import type { Program, ProgramMessage } from '../../support/processes.ts'
import type { TestRedis } from '../../support/redis.ts'

/** How the jobs of a queue end, whoever runs them. */
export interface Ends {
  /** When each was completed, ms of `performance.now()`. */
  readonly completedMs: readonly number[]
  /** Why jobs failed for good. */
  readonly failures: readonly string[]
  /** Resolves once so many have ended. */
  until(count: number): Promise<void>
}

/** Watches a queue until the test is over. */
export async function endsOf({ connection, prefix }: TestRedis, queue: string): Promise<Ends> {
  const events = new QueueEvents(queue, { connection, prefix })
  onTestFinished(() => events.close())
  const completedMs: number[] = []
  const failures: string[] = []
  events.on('completed', () => completedMs.push(performance.now()))
  events.on('failed', ({ failedReason }) => failures.push(failedReason))
  await events.waitUntilReady()
  const until = (count: number) =>
    new Promise<void>((resolve) => {
      const look = () => {
        if (completedMs.length + failures.length >= count) resolve()
      }
      events.on('completed', look).on('failed', look)
      look()
    })
  return { completedMs, failures, until }
}

/** How long after this the next job was completed, s. */
export function secondsUntilNext({ completedMs }: Ends, sinceMs: number): string {
  const next = completedMs.find((ms) => ms > sinceMs) ?? Number.NaN
  return ((next - sinceMs) / 1000).toFixed(1)
}

interface Line {
  readonly msg: string
  readonly attempt?: number
}

/** Ends a program that was started with `LOG_LEVEL=debug`. Lines of its log, by what they say. */
export async function linesOf(program: Program<ProgramMessage>, ...messages: string[]): Promise<Line[]> {
  await program.kill('SIGTERM')
  const lines = program.output.split('\n').filter((line) => line.startsWith('{'))
  return lines.map((line) => JSON.parse(line) as Line).filter(({ msg }) => messages.includes(msg))
}

/** As {@link linesOf}: the attempt of each job that ended, from 1. */
export async function attemptsOf(program: Program<ProgramMessage>): Promise<(number | undefined)[]> {
  return (await linesOf(program, 'completed', 'failed')).map(({ attempt }) => attempt)
}
