import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Answer, Call, Method, Parameter, Result } from './protocol.ts'

const PROGRAM = fileURLToPath(new URL('process.ts', import.meta.url))

/** Overrides that hide a declared rate are what some figures are about. */
const QUIET = ['--disable-warning=SLUICE_OVERRIDE']

/** Longer than anything that a process is asked to do. */
const CALL_TIMEOUT_MS = 90_000

interface Waiting {
  resolve(result: unknown): void
  reject(error: Error): void
}

/** A process that runs workers, as seen from the benchmark. */
export class WorkerProcess {
  readonly #child: ChildProcess
  readonly #exited: Promise<unknown>
  readonly #waiting = new Map<number, Waiting>()
  #calls = 0

  constructor(nodeArguments: readonly string[]) {
    this.#child = fork(PROGRAM, [], { execArgv: [...QUIET, '--import', 'tsx', ...nodeArguments] })
    this.#exited = once(this.#child, 'exit')
    this.#child.on('message', (answer) => this.#answered(answer as Answer))
    this.#child.once('exit', (code, signal) => {
      for (const { reject } of this.#waiting.values())
        reject(new Error(`a worker process ended with ${signal ?? code}`))
      this.#waiting.clear()
    })
  }

  call<M extends Method>(method: M, parameter: Parameter<M>): Promise<Result<M>> {
    this.#calls += 1
    const call: Call = { call: this.#calls, method, parameter }
    return new Promise<unknown>((resolve, reject) => {
      const giveUp = () => reject(new Error(`a worker process did not answer ${method} within ${CALL_TIMEOUT_MS} ms`))
      const timer = setTimeout(giveUp, CALL_TIMEOUT_MS)
      const settled = <T>(settle: (value: T) => void) => {
        return (value: T) => {
          clearTimeout(timer)
          settle(value)
        }
      }
      this.#waiting.set(call.call, { resolve: settled(resolve), reject: settled(reject) })
      this.#child.send(call, (error) => error && settled(reject)(error))
    }) as Promise<Result<M>>
  }

  /** Lets it end by itself, so that a profile is written. */
  async stop(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect()
    await this.#exited
  }

  #answered(answer: Answer): void {
    const waiting = this.#waiting.get(answer.call)
    this.#waiting.delete(answer.call)
    if ('error' in answer) waiting?.reject(new Error(answer.error))
    else waiting?.resolve(answer.result)
  }
}

/**
 * Processes that are started once and serve one figure after the other, so that what is measured is warm. Each is
 * known by its name.
 */
export class Fleet {
  readonly #processes = new Map<string, WorkerProcess>()
  readonly #nodeArguments: readonly string[]

  constructor(nodeArguments: readonly string[] = []) {
    this.#nodeArguments = nodeArguments
  }

  process(name: string): WorkerProcess {
    let found = this.#processes.get(name)
    if (!found) {
      found = new WorkerProcess(this.#nodeArguments)
      this.#processes.set(name, found)
    }
    return found
  }

  /** So many processes that run one thing together. */
  team(size: number): WorkerProcess[] {
    return Array.from({ length: size }, (_, i) => this.process(`team ${i + 1}`))
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#processes.values()].map((process) => process.stop()))
  }
}
