import { afterAll, beforeAll } from 'vitest'
import { type Program, useProcesses } from '../../../support/processes.ts'
import type { TestRedis } from '../../../support/redis.ts'
import type { Command, Message, Opening } from './messages.ts'
import { Run } from './run.ts'

export const PROCESSES = 3
const CALLER = new URL('../programs/caller.ts', import.meta.url)

/** Three processes, whose workers serve the same queues. Started before the tests of a file, and stopped after them. */
export class CallerFleet {
  #programs: Program<Message>[] = []
  readonly #runs = new Map<string, Run>()

  constructor(redis: TestRedis) {
    const processes = useProcesses()
    beforeAll(async () => {
      const args = [redis.url, redis.prefix]
      this.#programs = Array.from({ length: PROCESSES }, () => processes.fork<Message>(CALLER, { args }))
      for (const program of this.#programs) program.onMessage((message) => this.#note(program.pid, message))
      await Promise.all(this.#programs.map((program) => program.waitFor('ready')))
    })
    afterAll(async () => {
      this.#tell({ do: 'stop' })
      await Promise.all(this.#programs.map((program) => program.exited))
    })
  }

  /** One worker of the queue in each process. */
  async open(opening: Opening): Promise<Run> {
    const run = new Run()
    this.#runs.set(opening.queue, run)
    this.#tell({ do: 'open', opening })
    await run.until(() => run.count('opened') === PROCESSES)
    return run
  }

  /** Closes the workers of a queue: afterwards all that they did is told. */
  async close(queue: string): Promise<void> {
    this.#tell({ do: 'close', queue })
    const run = this.#runs.get(queue)!
    await run.until(() => run.count('closed') === PROCESSES)
  }

  #tell(command: Command): void {
    for (const program of this.#programs) program.send(command)
  }

  #note(pid: number, message: Message): void {
    if ('queue' in message) this.#runs.get(message.queue)?.note(pid, message)
  }
}
