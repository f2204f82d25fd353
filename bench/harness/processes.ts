import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'

const HOST = fileURLToPath(new URL('process-host.ts', import.meta.url))
/** Overrides that hide a declared rate are intended in some figures. */
const QUIET = ['--disable-warning=SLUICE_OVERRIDE', '--import', 'tsx']
/** Longer than any call to a process takes. */
const CALL_TIMEOUT_MS = 90_000
const EXIT_TIMEOUT_MS = 30_000

export interface Call {
  readonly call: number
  readonly method: string
  readonly parameters: readonly unknown[]
}

export interface Answer {
  readonly call: number
  readonly result?: unknown
  readonly error?: string
}

/** Methods of a process. What they take and return can be sent over IPC. */
type Methods<M> = { readonly [K in keyof M]: (...parameters: never[]) => Promise<unknown> }

/** A process of the bench, as seen from its parent. */
export class Remote<M extends Methods<M>> {
  readonly #name: string
  readonly #child: ChildProcess
  readonly #exited: Promise<unknown>
  readonly #waiting = new Map<number, (answer: Omit<Answer, 'call'>) => void>()
  #calls = 0

  /** @param program exports its `methods` */
  constructor(program: URL, nodeArguments: readonly string[]) {
    this.#name = basename(program.pathname, '.ts')
    this.#child = fork(HOST, [program.href], { execArgv: [...QUIET, ...nodeArguments] })
    this.#exited = once(this.#child, 'exit')
    this.#child.on('message', ({ call, ...answer }: Answer) => this.#waiting.get(call)?.(answer))
    this.#child.once('exit', (code, signal) => {
      for (const answer of this.#waiting.values()) answer({ error: `it ended with ${signal ?? code}` })
    })
  }

  async call<K extends keyof M & string>(
    method: K,
    ...parameters: Parameters<M[K]>
  ): Promise<Awaited<ReturnType<M[K]>>> {
    const call = ++this.#calls
    let late: NodeJS.Timeout | undefined
    const { result, error } = await new Promise<Omit<Answer, 'call'>>((resolve) => {
      late = setTimeout(() => resolve({ error: `no answer within ${CALL_TIMEOUT_MS} ms` }), CALL_TIMEOUT_MS)
      this.#waiting.set(call, resolve)
      this.#child.send(
        { call, method, parameters } satisfies Call,
        (error) => error && resolve({ error: error.message }),
      )
    })
    clearTimeout(late)
    this.#waiting.delete(call)
    if (error !== undefined) throw new Error(`${method} of a ${this.#name} process: ${error}`)
    return result as Awaited<ReturnType<M[K]>>
  }

  /** Lets it exit by itself, so that a profile is written, but not for ever. */
  async stop(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect()
    const late = setTimeout(() => this.#child.kill('SIGKILL'), EXIT_TIMEOUT_MS)
    await this.#exited
    clearTimeout(late)
  }
}

/** Named processes are started once and reused by all figures, so that measurements run on warm ones. */
export class Processes {
  readonly #named = new Map<string, Remote<never>>()
  readonly #nodeArguments: readonly string[]

  constructor(nodeArguments: readonly string[]) {
    this.#nodeArguments = nodeArguments
  }

  named<M extends Methods<M>>(name: string, program: URL): Remote<M> {
    const found = this.#named.get(name) ?? this.start<never>(program)
    this.#named.set(name, found)
    return found as unknown as Remote<M>
  }

  /** A process for one measurement: the caller has to stop it. */
  start<M extends Methods<M>>(program: URL, nodeArguments: readonly string[] = []): Remote<M> {
    return new Remote<M>(program, [...this.#nodeArguments, ...nodeArguments])
  }

  /** Stops those with a name: if they are asked for later, they are new. */
  async stop(): Promise<void> {
    const all = [...this.#named.values()]
    this.#named.clear()
    await Promise.all(all.map((one) => one.stop()))
  }
}
