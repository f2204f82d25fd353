import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, inject } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const WAIT_TIMEOUT_MS = 60_000

/** A message that a program sends to its parent with `process.send`: an object distinguished by `type`. */
export interface ProgramMessage {
  type: string
}

/** Options for the start of a program. */
export interface ForkOptions {
  args?: string[]
  /** Added to this process's environment; `undefined` removes a variable. */
  env?: Record<string, string | undefined>
  /** Where it was compiled to. Default: the folder of this run. */
  folder?: string
  /** What stands before the program in a command line of bash, such as `RATE='50/s'`. Default: no shell starts it. */
  assignments?: string
}

/** How a program ended: one of the two is null. */
export interface ProgramExit {
  code: number | null
  signal: NodeJS.Signals | null
}

/** A TypeScript program in a process of its own. */
export interface Program<Message extends ProgramMessage> {
  readonly pid: number
  /** All messages received so far. */
  readonly messages: readonly Message[]
  /** What it wrote to stdout and stderr so far. */
  readonly output: string
  /** Resolves when the process has ended. */
  readonly exited: Promise<ProgramExit>
  send(message: unknown): void
  /** Calls `listen` with every message from now on. */
  onMessage(listen: (message: Message) => void): void
  /**
   * The first message of a type that passes `accept`, including those received before the call. Rejects, with the
   * program's output, when the program ends first or no such message arrives within `timeoutMs` (default 60 s).
   */
  waitFor<Type extends Message['type']>(
    type: Type,
    accept?: (message: Extract<Message, { type: Type }>) => boolean,
    timeoutMs?: number,
  ): Promise<Extract<Message, { type: Type }>>
  /** Signals the process (default SIGKILL) and resolves when it has ended. */
  kill(signal?: NodeJS.Signals): Promise<ProgramExit>
}

/** What Node runs instead of a TypeScript program: `global-setup.ts` says which are compiled. */
export function compiledProgram(script: URL | string, folder = inject('programsFolder')): string {
  const file = relative(ROOT, fileURLToPath(script))
  return join(folder, file.replace(/\.ts$/, '.mjs'))
}

/** Starts programs for a test file. */
export interface Processes {
  fork<Message extends ProgramMessage = ProgramMessage>(script: URL | string, options?: ForkOptions): Program<Message>
}

/**
 * Lets a test file start TypeScript programs. Call it once, at the top of the file: `const processes = useProcesses()`.
 * A program that still runs after the file is killed, and the file fails.
 */
export function useProcesses(): Processes {
  const running = new Map<ChildProcess, string>()
  afterAll(async () => {
    const left = [...running]
    await Promise.all(
      left.map(async ([child]) => {
        const gone = once(child, 'exit')
        child.kill('SIGKILL')
        await gone
      }),
    )
    if (left.length > 0) {
      throw new Error(`expected every program to have ended, still running: ${left.map(([, name]) => name).join(', ')}`)
    }
  })
  return {
    fork: (script, options = {}) => {
      const file = compiledProgram(script, options.folder)
      const { assignments } = options
      const child = fork(file, options.args ?? [], {
        ...(assignments === undefined
          ? { execArgv: [] }
          : { execPath: 'bash', execArgv: ['-c', `${assignments} exec '${process.execPath}' "$0" "$@"`] }),
        env: { ...process.env, ...options.env },
        stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      })
      running.set(child, `${file} (pid ${child.pid})`)
      child.once('exit', () => running.delete(child))
      return new ForkedProgram(file, child)
    },
  }
}

class ForkedProgram<Message extends ProgramMessage> implements Program<Message> {
  readonly messages: Message[] = []
  output = ''
  readonly exited: Promise<ProgramExit>
  readonly #name: string
  readonly #child: ChildProcess

  constructor(name: string, child: ChildProcess) {
    this.#name = name
    this.#child = child
    child.on('message', (message) => this.messages.push(message as Message))
    child.stdout?.on('data', (chunk) => {
      this.output += chunk
    })
    child.stderr?.on('data', (chunk) => {
      this.output += chunk
    })
    // `close` rather than `exit`: only then all output and every message has arrived.
    this.exited = once(child, 'close').then(([code, signal]) => ({ code, signal }))
  }

  get pid(): number {
    const { pid } = this.#child
    if (pid === undefined) throw new Error(`${this.#name} did not start`)
    return pid
  }

  send(message: unknown): void {
    this.#child.send(message as Parameters<ChildProcess['send']>[0])
  }

  onMessage(listen: (message: Message) => void): void {
    this.#child.on('message', (message) => listen(message as Message))
  }

  waitFor<Type extends Message['type']>(
    type: Type,
    accept: (message: Extract<Message, { type: Type }>) => boolean = () => true,
    timeoutMs = WAIT_TIMEOUT_MS,
  ): Promise<Extract<Message, { type: Type }>> {
    type Wanted = Extract<Message, { type: Type }>
    const find = () =>
      this.messages.find((message): message is Wanted => message.type === type && accept(message as Wanted))
    return new Promise((resolve, reject) => {
      const stopWaiting = () => {
        clearTimeout(timer)
        this.#child.off('message', look)
      }
      const fail = (reason: string) => {
        stopWaiting()
        reject(new Error(`${this.#name}: ${reason} before message '${type}' came. Its output:\n${this.output}`))
      }
      const look = () => {
        const found = find()
        if (found === undefined) return false
        stopWaiting()
        resolve(found)
        return true
      }
      const timer = setTimeout(() => fail(`${timeoutMs} ms went by`), timeoutMs)
      if (look()) return
      this.#child.on('message', look)
      void this.exited.then(({ code, signal }) => {
        if (!look()) fail(`ended with ${signal ?? `code ${code}`}`)
      })
    })
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<ProgramExit> {
    this.#child.kill(signal)
    return this.exited
  }
}
