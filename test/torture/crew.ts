import type { ForkOptions, Processes, Program, ProgramMessage } from '../support/processes.ts'

/** A busy machine takes long to start a program. */
const READY_MS = 60_000

/** Programs of one kind, of which there are always as many. */
export class Crew {
  readonly #fork: (n: number) => Program<ProgramMessage>
  readonly #members: Program<ProgramMessage>[] = []
  readonly #dismissed = new Set<Program<ProgramMessage>>()
  /** What ended though nobody had ended it, or otherwise than it should. */
  readonly crashes: string[] = []
  #started = 0

  /** @param optionsOf how the n-th program is started, from 0 */
  constructor(processes: Processes, script: URL, optionsOf: (n: number) => ForkOptions) {
    this.#fork = (n) => processes.fork(script, optionsOf(n))
  }

  async add(): Promise<void> {
    const member = this.#fork(this.#started++)
    this.#members.push(member)
    void member.exited.then(({ code, signal }) => {
      const orderly = this.#dismissed.has(member) && (code === 0 || signal === 'SIGKILL')
      if (!orderly) this.crashes.push(`${signal ?? `code ${code}`}: ${member.output}`)
    })
    await member.waitFor('ready', undefined, READY_MS)
  }

  pidOf(victim: number): number {
    return this.#member(victim).pid
  }

  /** Ends one, and then starts another. */
  async replace(victim: number, signal: NodeJS.Signals): Promise<void> {
    await this.#dismiss(this.#member(victim), signal)
    await this.add()
  }

  /** Replaces all, one after the other, each while the next one is already at work. */
  async deploy(): Promise<void> {
    for (const member of [...this.#members]) {
      await this.add()
      await this.#dismiss(member, 'SIGTERM')
    }
  }

  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    await Promise.all([...this.#members].map((member) => this.#dismiss(member, signal)))
  }

  #member(victim: number): Program<ProgramMessage> {
    return this.#members[victim % this.#members.length] as Program<ProgramMessage>
  }

  async #dismiss(member: Program<ProgramMessage>, signal: NodeJS.Signals): Promise<void> {
    this.#members.splice(this.#members.indexOf(member), 1)
    this.#dismissed.add(member)
    await member.kill(signal)
  }
}
