import type { ShapeMode } from 'sluice'
import { gotText, InvalidInputError, orLate, SluiceError } from 'sluice/internal'

/** The parts of an ioredis client (`Redis` or `Cluster`) that are used. */
export interface ModeRedis {
  readonly status: string
  hgetall(key: string): Promise<Record<string, string>>
  hset(key: string, field: string, value: string): Promise<unknown>
  hdel(key: string, field: string): Promise<unknown>
}

export interface ModeSwitchOptions {
  /** Prefix of the key. Default `sluice`: the modes are in the hash `sluice:modes`. */
  readonly prefix?: string
  /** How old the known modes may be while requests arrive. ms, default 1000. */
  readonly refreshMs?: number
  /** How long the first request, and the first after a pause, waits for Redis. ms, default 100. */
  readonly timeoutMs?: number
  /** Called with each error that leaves the last known modes in force. It must not throw. */
  readonly onError?: (error: Error) => void
  /** A clock, ms. Default: `performance.now`. */
  readonly now?: () => number
}

/** Who sets a mode, and why. */
export interface ModeChange {
  readonly by: string
  readonly reason: string
}

/** A mode that was set at run time. */
export interface ModeSetting extends ModeChange {
  readonly mode: ShapeMode
  /** When it was set, by the clock of the process that set it. */
  readonly at: Date
}

/** Thrown by `setMode` and `settings` when Redis does not answer in time, or reports that it cannot serve. */
export class ModesUnavailableError extends SluiceError {
  constructor(reason: string, options?: ErrorOptions) {
    super(`Modes are unavailable: ${reason}`, options)
  }
}

/** How long `setMode` and `settings` wait, ms. */
const REPLY_TIMEOUT_MS = 5000
export const MODES: readonly unknown[] = ['enforce', 'shadow', 'off'] satisfies ShapeMode[]

/**
 * Kill switch and dark launch: modes set at run time, for all processes with the same Redis and prefix. While requests
 * arrive, a change takes effect everywhere within `refreshMs`; in the process that made it, at once. While Redis does
 * not answer, the last known modes stay in force, and before any is known, those given in the code. (Stripe, "Scaling
 * your API with rate limiters", 2017: every limiter can be turned off at once, and is first launched in the dark)
 */
export class ModeSwitch {
  /** The hash of all modes. */
  readonly key: string
  readonly #redis: ModeRedis
  readonly #refreshMs: number
  readonly #timeoutMs: number
  readonly #onError: (error: Error) => void
  readonly #now: () => number
  #modes: ReadonlyMap<string, ModeSetting> = new Map()
  /** When Redis last answered, or failed to. */
  #askedMs = Number.NEGATIVE_INFINITY
  #asking: Promise<void> | undefined
  /**
   * Whether a command is still without a reply. On a lost connection no other is sent, so that commands do not pile up.
   */
  #unanswered = false
  /** Counts the changes made here: the reply to an earlier read does not include them. */
  #changes = 0

  /** @throws InvalidInputError */
  constructor(redis: ModeRedis, options: ModeSwitchOptions = {}) {
    const { prefix = 'sluice', refreshMs = 1000, timeoutMs = 100, onError = () => {} } = options
    if (typeof redis?.hgetall !== 'function')
      throw new InvalidInputError(
        `modes need an ioredis client; got ${Object(redis) === redis ? 'another object' : gotText(redis)}`,
      )
    if (!/[^:]$/.test(prefix))
      throw new InvalidInputError(`prefix must be a string without a colon at its end; got ${prefix}`)
    for (const [name, ms] of Object.entries({ refreshMs, timeoutMs })) {
      if (!(Number.isFinite(ms) && ms > 0)) throw new InvalidInputError(`${name} must be a number of ms > 0; got ${ms}`)
    }
    this.#redis = redis
    this.key = `${prefix}:modes`
    this.#refreshMs = refreshMs
    this.#timeoutMs = timeoutMs
    this.#onError = onError
    this.#now = options.now ?? (() => performance.now())
  }

  /**
   * The mode set for a name; undefined if none is. Returns a promise only if the known modes are missing or too old:
   * then Redis is asked first. Never rejects.
   */
  modeOf(name: string): ShapeMode | undefined | Promise<ShapeMode | undefined> {
    const ageMs = this.#now() - this.#askedMs
    if (ageMs >= this.#refreshMs) {
      const asking = this.#refresh()
      if (ageMs >= 2 * this.#refreshMs) return asking.then(() => this.#modes.get(name)?.mode)
    }
    return this.#modes.get(name)?.mode
  }

  /**
   * Sets the mode of a name for the whole fleet.
   * @param mode null for the mode given in the code
   * @throws InvalidInputError, ModesUnavailableError (the mode may have been set)
   */
  async setMode(name: string, mode: ShapeMode | null, change: ModeChange): Promise<void> {
    const { by, reason } = change ?? ({} as Partial<ModeChange>)
    if (typeof name !== 'string' || name === '') throw new InvalidInputError(`a mode needs a name; got ${String(name)}`)
    if (mode !== null && !MODES.includes(mode)) {
      throw new InvalidInputError(`mode must be 'enforce', 'shadow', 'off' or null; got ${JSON.stringify(mode)}`)
    }
    if (!by || !reason) throw new InvalidInputError('setMode needs { by, reason }: who changes the mode, and why')
    const text = JSON.stringify({ mode, by, reason, at: new Date() })
    const { key } = this
    await answered(mode === null ? this.#redis.hdel(key, name) : this.#redis.hset(key, name, text))
    this.#changes += 1
    const modes = new Map(this.#modes)
    const setting = readSetting(text)
    if (setting) modes.set(name, setting)
    else modes.delete(name)
    this.#modes = modes
  }

  /** All modes that are set now, by name. @throws ModesUnavailableError */
  async settings(): Promise<ReadonlyMap<string, ModeSetting>> {
    return readSettings(await answered(this.#redis.hgetall(this.key)))
  }

  #refresh(): Promise<void> {
    this.#asking ??= this.#ask().finally(() => {
      this.#askedMs = this.#now()
      this.#asking = undefined
    })
    return this.#asking
  }

  async #ask(): Promise<void> {
    const { status } = this.#redis
    const changes = this.#changes
    try {
      if (this.#unanswered && status !== 'ready') throw new Error(`connection is ${status}`)
      this.#unanswered = true
      const raw = this.#redis.hgetall(this.key).finally(() => {
        this.#unanswered = false
      })
      const modes = readSettings(await inTime(raw, this.#timeoutMs))
      if (changes === this.#changes) this.#modes = modes
    } catch (error) {
      this.#onError(error as Error)
    }
  }
}

async function answered<T>(reply: Promise<T>): Promise<T> {
  try {
    return await inTime(reply, REPLY_TIMEOUT_MS)
  } catch (error) {
    throw new ModesUnavailableError((error as Error).message, { cause: error })
  }
}

function inTime<T>(reply: Promise<T>, timeoutMs: number): Promise<T> {
  return orLate(timeoutMs, reply, () => new Error(`Redis did not answer within ${timeoutMs} ms`))
}

function readSettings(raw: Readonly<Record<string, string>>): Map<string, ModeSetting> {
  const found = Object.entries(raw).map(([name, text]) => [name, readSetting(text)] as const)
  return new Map(found.filter((entry): entry is [string, ModeSetting] => entry[1] !== undefined))
}

/** Values that other programs wrote are ignored. */
function readSetting(text: string): ModeSetting | undefined {
  try {
    const { mode, by, reason, at } = JSON.parse(text)
    return MODES.includes(mode) ? { mode, by, reason, at: new Date(at) } : undefined
  } catch {
    return undefined
  }
}
