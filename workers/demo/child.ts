import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const endWithParent = new URL('./end-with-parent.mjs', import.meta.url).href

/** One of our programs in a process of its own. */
export interface Child {
  readonly name: string
  readonly process: ChildProcess
  /**
   * Resolves when it has ended: with undefined after exit code 0 or `stop`, else with an error that says how it ended.
   */
  readonly ended: Promise<Error | undefined>
  /** SIGTERM, then SIGKILL after `graceMs` (default 10,000). Resolves when the process is gone. */
  stop(graceMs?: number): Promise<void>
}

export interface ChildOptions {
  name: string
  /** The compiled program. */
  program: string
  /** Replaces the variables of this process where both have one. */
  env: Readonly<Record<string, string>>
  /** Receives what the program prints. */
  logFile: string
}

function lastLines(file: string): string {
  return readFileSync(file, 'utf8').trim().split('\n').slice(-5).join('\n') || 'It printed nothing.'
}

/** Starts a program. It is not in the terminal's foreground group, so that Ctrl-C reaches only this process. */
export function startChild({ name, program, env, logFile }: ChildOptions): Child {
  const log = openSync(logFile, 'w')
  const child = spawn(process.execPath, ['--import', endWithParent, program], {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: ['ignore', log, log, 'ipc'],
    detached: process.platform !== 'win32',
  })
  closeSync(log)
  let stopping = false
  const gone = once(child, 'close')
  const ended = gone.then(
    ([code, signal]): Error | undefined => {
      if (stopping || code === 0) return undefined
      return new Error(`${name} ended with ${signal ?? `exit code ${code}`}. Its last lines:\n${lastLines(logFile)}`)
    },
    (error: Error) => new Error(`${name} could not be started: ${error.message}`, { cause: error }),
  )
  return {
    name,
    process: child,
    ended,
    stop: async (graceMs = 10_000) => {
      stopping = true
      const force = setTimeout(() => child.kill('SIGKILL'), graceMs)
      child.kill('SIGTERM')
      await ended
      clearTimeout(force)
    },
  }
}
