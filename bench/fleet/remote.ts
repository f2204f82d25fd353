import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Answer, Call, MethodTable } from './calls.ts'

/** Overrides that hide a declared rate are intended in some figures. */
const QUIET = ['--disable-warning=SLUICE_OVERRIDE']

/** Longer than any call to a process takes. */
const CALL_TIMEOUT_MS = 90_000
const EXIT_TIMEOUT_MS = 30_000

interface Waiting {
  resolve(result: unknown): void
  reject(error: Error): void
}

/** A process of the benchmark, as seen from its parent. */
export class Remote<M extends MethodTable<M>> {
  readonly #name: string
  readonly #child: ChildProcess
  readonly #exited: Promise<unknown>
  readonly #waiting = new Map<number, Waiting>()
  #calls = 0

  /** @param program which calls `serve` */
  constructor(program: URL, nodeArguments: readonly string[]) {
    const file = fileURLToPath(program)
    this.#name = basename(file, '.ts')
    this.#child = fork(file, [], { execArgv: [...QUIET, '--import', 'tsx', ...nodeArguments] })
    this.#exited = once(this.#child, 'exit')
    this.#child.on('message', (answer) => this.#answered(answer as Answer))
    this.#child.once('exit', (code, signal) => {
      for (const { reject } of this.#waiting.values())
        reject(new Error(`a ${this.#name} process ended with ${signal ?? code}`))
      this.#waiting.clear()
    })
  }

  call<K extends keyof M & string>(method: K, ...parameters: Parameters<M[K]>): Promise<Awaited<ReturnType<M[K]>>> {
    this.#calls += 1
    const call: Call = { call: this.#calls, method, parameter: parameters[0] }
    return new Promise<unknown>((resolve, reject) => {
      const late = `a ${this.#name} process did not answer ${method} within ${CALL_TIMEOUT_MS} ms`
      const timer = setTimeout(() => reject(new Error(late)), CALL_TIMEOUT_MS)
      const settled = <T>(settle: (value: T) => void) => {
        return (value: T) => {
          clearTimeout(timer)
          settle(value)
        }
      }
      this.#waiting.set(call.call, { resolve: settled(resolve), reject: settled(reject) })
      this.#child.send(call, (error) => error && settled(reject)(error))
    }) as Promise<Awaited<ReturnType<M[K]>>>
  }

  /** Lets it exit by itself, so that a profile is written, but not for ever. */
  async stop(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect()
    const late = setTimeout(() => this.#child.kill('SIGKILL'), EXIT_TIMEOUT_MS)
    await this.#exited
    clearTimeout(late)
  }

  #answered(answer: Answer): void {
    const waiting = this.#waiting.get(answer.call)
    this.#waiting.delete(answer.call)
    if ('error' in answer) waiting?.reject(new Error(answer.error))
    else waiting?.resolve(answer.result)
  }
}
