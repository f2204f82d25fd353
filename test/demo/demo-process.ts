import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from '../support/concurrent.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** A run of `npm start` in a process group of its own, with a folder for temporary files of its own. */
export interface DemoProcess {
  /** What it printed, errors included. */
  readonly output: string
  /** What of it came on stderr. */
  readonly errors: string
  /** The exit code, once the process is gone and all its output has come. */
  readonly exitCode: Promise<number | null>
  /** Resolves as soon as the output matches; rejects when the process ends before. */
  printed(pattern: RegExp): Promise<void>
  /** Stops reading what it prints, as `head` does. Errors are still read. */
  closeOutput(): void
  /** What a terminal does at Ctrl-C: signals the whole foreground group. */
  signalGroup(signal: NodeJS.Signals): void
  /** Process ids that belong to this run, whoever their parent is, by command line. */
  processes(): Map<number, string>
  /** Temporary files that are left, the cache of compiled sources apart. */
  leftFiles(): string[]
}

/** The processes that name `folder` in their command line or environment. */
function processesOf(folder: string): Map<number, string> {
  const found = new Map<number, string>()
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
      const environment = readFileSync(`/proc/${pid}/environ`, 'utf8')
      if (command.includes(folder) || environment.includes(folder)) found.set(Number(pid), command)
    } catch {
      // It ended between the two looks, or belongs to somebody else.
    }
  }
  return found
}

function endGroup(child: ChildProcess): void {
  try {
    process.kill(-child.pid!, 'SIGKILL')
  } catch {
    // Gone, as it should be.
  }
}

/** Starts the demonstration with `args`; what is left of it when the test is over is killed. */
export function startDemo(...args: string[]): DemoProcess {
  const folder = temporaryFolder()
  // PostgreSQL may run as another user, who has to get through.
  chmodSync(folder, 0o755)
  const child = spawn(process.execPath, ['workers/start.mjs', ...args], {
    cwd: root,
    env: { ...process.env, TMPDIR: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  let output = ''
  let errors = ''
  const listeners = new Set<() => void>()
  const hear = (chunk: Buffer): void => {
    output += chunk.toString()
    for (const listener of listeners) listener()
  }
  child.stdout.on('data', hear)
  child.stderr.on('data', (chunk: Buffer) => {
    errors += chunk.toString()
    hear(chunk)
  })
  const exitCode = once(child, 'close').then(([code]) => code as number | null)
  onTestFinished(() => endGroup(child))
  return {
    get output() {
      return output
    },
    get errors() {
      return errors
    },
    exitCode,
    printed: (pattern) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (!pattern.test(output)) return
          listeners.delete(look)
          resolve()
        }
        listeners.add(look)
        look()
        exitCode.then(() => reject(new Error(`ended without printing ${pattern}:\n${output}`)))
      }),
    closeOutput: () => {
      child.stdout.destroy()
    },
    signalGroup: (signal) => process.kill(-child.pid!, signal),
    processes: () => processesOf(folder),
    leftFiles: () => readdirSync(folder).filter((file) => !basename(file).startsWith('tsx-')),
  }
}
