import type { MeterState } from 'sluice'
import { intervalUs, parseRate, unitsPerSecond } from 'sluice/internal'
import type { Policy } from '../responses/policy.ts'

/** How old the reported limits of a queue may be, ms: they are only a hint, so not every response reads them anew. */
const FRESH_MS = 1000

/** The name of the policy that admits jobs to a queue; its quota is the capacity. */
export function admissionPolicyName(queueName: string): string {
  return `${queueName}-admission`
}

/** The name of the policy by which jobs leave a queue; its quota is the rate. */
function egressPolicyName(queueName: string): string {
  return `${queueName}-egress`
}

/** A queue's meter as header fields report it. It is read at most once a second, and only on demand. */
export class LastMeter {
  readonly #queueName: string
  readonly #read: () => Promise<MeterState>
  #state: MeterState | undefined
  /** Derived from the state. */
  #egress: readonly Policy[] = []
  #intervalMs: number | undefined
  #readAtMs = Number.NEGATIVE_INFINITY
  #reading: Promise<void> | undefined
  /** Jobs that this process has admitted since the last read. */
  #admitted = 0

  constructor(queueName: string, read: () => Promise<MeterState>) {
    this.#queueName = queueName
    this.#read = read
  }

  admitted(jobs: number): void {
    this.#admitted += jobs
  }

  /** The capacity, if the queue has one and it is known. */
  get capacity(): number | undefined {
    return this.#state?.capacity
  }

  /** Redis's time, ms since 1970, if known. */
  get clockMs(): number | undefined {
    return this.#state && this.#state.at.getTime() + performance.now() - this.#readAtMs
  }

  /**
   * Reads the meter again if it is old. Returns a promise only before the first read: old values are better than
   * waiting.
   */
  refresh(): Promise<void> | undefined {
    if (performance.now() - this.#readAtMs <= FRESH_MS) return undefined
    this.#reading ??= this.#refresh().finally(() => {
      this.#reading = undefined
    })
    return this.#state ? undefined : this.#reading
  }

  /** Empty while nothing is known: a response can do without them. */
  policies(): Policy[] {
    return this.#state ? [...this.#admission(this.#state), ...this.#egress] : []
  }

  /** The estimated start of a job with `position` jobs ahead of it; undefined if unknown. */
  startsAt(position: number): Date | undefined {
    return this.#state && estimatedStart(this.#state, this.#intervalMs, performance.now() - this.#readAtMs, position)
  }

  async #refresh(): Promise<void> {
    const admitted = this.#admitted
    try {
      this.#state = await this.#read()
      this.#admitted -= admitted
      const { rate } = this.#state
      this.#egress = egress(this.#queueName, this.#state)
      this.#intervalMs = rate && unitsPerSecond(rate) > 0 ? intervalUs(parseRate(rate)) / 1000 : undefined
    } catch {
      this.#state = undefined
    }
    this.#readAtMs = performance.now()
  }

  #admission({ capacity, depth }: MeterState): Policy[] {
    if (capacity === undefined) return []
    const remaining = Math.max(0, capacity - depth - this.#admitted)
    return [{ name: admissionPolicyName(this.#queueName), quota: capacity, remaining }]
  }
}

/** The rate of the queue, without remaining units: they do not decide about the next request. */
function egress(queueName: string, { rate }: MeterState): Policy[] {
  if (!rate || unitsPerSecond(rate) === 0) return []
  return [{ name: egressPolicyName(queueName), ...wholeWindow(rate) }]
}

/** Fields have whole seconds and whole units: 1/250ms becomes 4 in one second, 0.1/s becomes 1 in ten seconds. */
function wholeWindow(text: string): { quota: number; windowMs: number } {
  const { limit, periodMs } = parseRate(text)
  if (Number.isInteger(limit) && periodMs % 1000 === 0) return { quota: limit, windowMs: periodMs }
  const perMs = limit / periodMs
  const windowMs = Math.max(1, Math.ceil(1 / perMs / 1000 - 1e-9)) * 1000
  return { quota: Math.max(1, Math.floor(perMs * windowMs + 1e-9)), windowMs }
}

/**
 * The estimated start of a job with `position` jobs ahead of it, from a meter that was read a while ago; undefined if
 * unknown. A cost c leaves at once while the bucket's level plus c is at most the burst (docs/algorithm.md); while jobs
 * wait, the bucket stays that full.
 * @param intervalMs between units at the rate in force; undefined if there is none
 * @param ageMs since the meter was read
 */
export function estimatedStart(
  { at, paused, pausedUntil, level, meanCost, waiting, shape }: MeterState,
  intervalMs: number | undefined,
  ageMs: number,
  position: number,
): Date | undefined {
  if (paused) return undefined
  const readyMs = Math.max(at.getTime() + ageMs, pausedUntil?.getTime() ?? 0)
  if (intervalMs === undefined) return position === 0 ? new Date(readyMs) : undefined
  const owed = waiting > 0 ? level : Math.max(0, level - ageMs / intervalMs)
  const over = owed + (position + 1) * meanCost - (shape?.burst ?? 1)
  return new Date(readyMs + Math.max(0, over) * intervalMs)
}
