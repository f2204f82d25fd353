import { defaultDeclarer } from '../declarer.ts'
import { LimitConflictError } from '../errors.ts'
import type { Decider } from './decider.ts'
import type { LimitRule } from './definition.ts'
import { type Limit, LimitSet } from './limit.ts'
import type { LimitKey } from './limit-keys.ts'
import type { LimiterOptions, TierOf } from './limiter-options.ts'

/** Whether the definition is in force; the one that is, and its version or ''. */
type DefineReply = [inForce: number, definition: string, version: string]

/** What the name of a limit stands for: what this program says, until a newer one has said otherwise. */
export class NamedLimit {
  readonly #options: LimiterOptions
  readonly #decider: Decider
  readonly #timeoutMs: number
  readonly #onFollow: (options: LimiterOptions) => void
  #limits: LimitSet
  #defining: Promise<void> | undefined
  #isDefined = false

  /**
   * @param onFollow told of the rule of a newer program, which holds for this one too
   * @throws InvalidLimitError, InvalidRateError
   */
  constructor(
    options: LimiterOptions,
    decider: Decider,
    timeoutMs: number,
    onFollow: (options: LimiterOptions) => void,
  ) {
    this.#options = options
    this.#decider = decider
    this.#timeoutMs = timeoutMs
    this.#onFollow = onFollow
    this.#limits = new LimitSet(options)
  }

  get control(): string {
    return this.#limits.control
  }

  /** The rule for keys without a tier. */
  get base(): Limit {
    return this.#limits.base
  }

  get isDefined(): boolean {
    return this.#isDefined
  }

  /**
   * Stores what the name stands for, or learns it. Callers that wait together ask once.
   * @throws LimitConflictError, LimiterUnavailableError
   */
  define(): Promise<void> {
    if (this.#isDefined) return Promise.resolve()
    this.#defining ??= this.#define().finally(() => {
      this.#defining = undefined
    })
    return this.#defining
  }

  /** A newer definition was seen. */
  outdate(): void {
    this.#isDefined = false
  }

  /** The rule that holds for a key. @throws InvalidLimitError for a tier that there is not */
  limitOf(key: LimitKey): Limit | Promise<Limit> {
    const { tierOf } = this.#options
    if (tierOf === undefined) return this.#limits.base
    const tier = tierFor(tierOf, key)
    if (typeof tier === 'string' || tier === undefined) return this.#limits.ofTier(tier)
    return tier.then((found) => this.#limits.ofTier(found))
  }

  async #define(): Promise<void> {
    const { name, prefix, mode, tierOf, version } = this.#options
    const { control, definition } = this.#limits
    const args = [definition, version ?? '', defaultDeclarer()]
    const reply = await this.#decider.run<DefineReply>(name, this.#timeoutMs, 'define-limit', [control], args)
    const [inForce, stored, storedVersion] = reply
    if (inForce !== 1) {
      const older = version === undefined || version < Number(storedVersion)
      if (storedVersion === '' || !older) throw new LimitConflictError(name, definition, stored)
      const rule = JSON.parse(stored) as LimitRule
      const options = { ...rule, name, prefix, mode, tierOf, version: Number(storedVersion) }
      this.#limits = new LimitSet(options as LimiterOptions)
      this.#onFollow(options as LimiterOptions)
    }
    this.#isDefined = true
  }
}

function tierFor(tierOf: TierOf, key: LimitKey): string | undefined | Promise<string | undefined> {
  if (typeof tierOf === 'function') return tierOf(key)
  return Object.hasOwn(tierOf, String(key)) ? tierOf[String(key)] : undefined
}
