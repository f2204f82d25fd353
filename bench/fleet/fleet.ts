import type { MethodTable } from './calls.ts'
import type { Methods } from './protocol.ts'
import { Remote } from './remote.ts'

const PROGRAM = new URL('process.ts', import.meta.url)

export type WorkerProcess = Remote<Methods>

/** Named processes that are started once and reused by all figures, so that measurements run on warm processes. */
export class Fleet {
  readonly #processes = new Map<string, WorkerProcess>()
  readonly #nodeArguments: readonly string[]

  constructor(nodeArguments: readonly string[] = []) {
    this.#nodeArguments = nodeArguments
  }

  process(name: string): WorkerProcess {
    let found = this.#processes.get(name)
    if (!found) {
      found = new Remote(PROGRAM, this.#nodeArguments)
      this.#processes.set(name, found)
    }
    return found
  }

  /** Several processes that run one thing together. */
  team(size: number): WorkerProcess[] {
    return Array.from({ length: size }, (_, i) => this.process(`team ${i + 1}`))
  }

  /** A process of another program, for one measurement: the caller has to stop it. */
  start<M extends MethodTable<M>>(program: URL, nodeArguments: readonly string[] = []): Remote<M> {
    return new Remote<M>(program, [...this.#nodeArguments, ...nodeArguments])
  }

  /** Stops all processes: those that are asked for later are new. */
  async stop(): Promise<void> {
    const processes = [...this.#processes.values()]
    this.#processes.clear()
    await Promise.all(processes.map((process) => process.stop()))
  }
}
