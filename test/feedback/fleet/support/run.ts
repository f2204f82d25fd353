import type { End, Message, Start, Told } from './messages.ts'

/** A start, and the process in which it was. */
export type FleetStart = Start & { readonly pid: number }

/** A message, and the process that it came from. */
export type Heard = Message & { readonly pid: number }

/** What the processes of a fleet told of one queue; what one of them told is in the order in which it happened there. */
export class Run {
  readonly told: Heard[] = []
  #watchers: (() => void)[] = []

  note(pid: number, message: Message): void {
    this.told.push({ ...message, pid })
    for (const wake of this.#watchers.splice(0)) wake()
  }

  count(type: Message['type']): number {
    return this.told.filter((one) => one.type === type).length
  }

  /** Resolves once it holds; looked at whenever something is told. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds()) await new Promise<void>((resolve) => this.#watchers.push(resolve))
  }

  /** By their slots. */
  get starts(): readonly FleetStart[] {
    return this.told.filter((one) => one.type === 'start').toSorted((a, b) => a.slotUs - b.slotUs)
  }

  get ends(): readonly End[] {
    return this.told.filter((one) => one.type === 'end')
  }

  /** By the time at which they were stored. */
  get changes(): readonly Told[] {
    return this.told.flatMap((one) => (one.type === 'change' ? one.change : [])).toSorted((a, b) => atMs(a) - atMs(b))
  }

  /** The pauses, from when they were stored until when they hold: ms on Redis's clock. */
  get pauses(): readonly { readonly atMs: number; readonly untilMs: number; readonly change: Told }[] {
    return this.changes.flatMap((change) =>
      change.kind === 'pause' ? { atMs: atMs(change), untilMs: Date.parse(change.until ?? ''), change } : [],
    )
  }

  get errors(): readonly string[] {
    return this.told.flatMap((one) => (one.type === 'error' ? one.message : []))
  }
}

export function atMs({ at }: Told): number {
  return Date.parse(at)
}
