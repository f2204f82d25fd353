import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterAll } from 'vitest'
import { compiledProgram } from '../../../test/support/processes.ts'
import type { TestRedis } from '../../../test/support/redis.ts'

/** The program `sluice`. */
export const sluiceProgram = () => compiledProgram(new URL('../src/main.ts', import.meta.url))

/** How a run of the command line ended. */
export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface StartOptions {
  /** What it reads on stdin; nothing without it. */
  readonly input?: string
  readonly env?: Readonly<Record<string, string | undefined>>
}

/** A run of the command line that goes on. */
export interface Running {
  readonly child: ChildProcessWithoutNullStreams
  /** What it printed so far. */
  readonly stdout: string
  readonly stderr: string
  readonly ended: Promise<Ended>
}

/** The command line as a process of its own, with the Redis and the prefix of a test file. */
export interface SluiceCommand {
  start(args: readonly string[], options?: StartOptions): Running
  /** Runs it to its end. */
  run(args: readonly string[], options?: StartOptions): Promise<Ended>
  /** Runs it with `--json` and reads what it printed. Fails if it did not end with 0. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what they expect
  json(args: readonly string[]): Promise<any>
}

/** Call it once, at the top of the file. A process that still runs after the file is killed. */
export function useSluice(redis: TestRedis): SluiceCommand {
  const running = new Set<ChildProcessWithoutNullStreams>()
  afterAll(() => {
    for (const child of running) child.kill('SIGKILL')
  })
  const start: SluiceCommand['start'] = (args, { input, env } = {}) => {
    const child = spawn(process.execPath, [sluiceProgram(), ...args], {
      env: { ...process.env, REDIS_URL: redis.url, PREFIX: redis.prefix, NO_COLOR: undefined, ...env },
    })
    running.add(child)
    child.stdin.end(input ?? '')
    return new RunningSluice(child, () => running.delete(child))
  }
  const run: SluiceCommand['run'] = (args, options) => start(args, options).ended
  const json: SluiceCommand['json'] = async (args) => {
    const { code, stdout, stderr } = await run([...args, '--json'])
    if (code !== 0) throw new Error(`sluice ${args.join(' ')} ended with ${code}: ${stderr}`)
    return JSON.parse(stdout)
  }
  return { start, run, json }
}

class RunningSluice implements Running {
  stdout = ''
  stderr = ''
  readonly child: ChildProcessWithoutNullStreams
  readonly ended: Promise<Ended>

  constructor(child: ChildProcessWithoutNullStreams, onEnd: () => void) {
    this.child = child
    child.stdin.on('error', () => undefined)
    child.stdout.on('data', (chunk) => {
      this.stdout += chunk
    })
    child.stderr.on('data', (chunk) => {
      this.stderr += chunk
    })
    this.ended = once(child, 'close').then(([code]) => {
      onEnd()
      return { code, stdout: this.stdout, stderr: this.stderr }
    })
  }
}
