import { LimitConflictError } from '../errors.ts'
import type { ShapeMode } from '../mode.ts'
import { defaultDeclarer } from '../redis/ids.ts'
import type { LimitScript } from '../redis/scripts.ts'
import type { Decider } from './decider.ts'
import { type Limit, LimitSet } from './limit.ts'
import type { Arguments } from './limit-client.ts'
import { DEFAULT_LIMIT_PREFIX, type LimitKey } from './limit-keys.ts'
import type { LimiterOptions, TierOf } from './limiter-options.ts'
import { partControls } from './spread-keys.ts'

/** Whether the given definition applies; then the stored one, and its version or ''. */
type DefineReply = [inForce: number, definition: string, version: string]
/** When the mode was set (µs), and whether the limit is spread. */
type ModeReply = [at: number, isSpread: number]

/** The common definition of all users of a name. */
type Rule = Omit<LimiterOptions, 'name' | 'prefix' | 'mode' | 'version'>

interface Terms {
  /** The rule, JSON. */
  readonly definition: string
  readonly version: number | undefined
  readonly rule: Rule
}

/** The definition behind the name of a limit: this program's, until a newer program has replaced it. */
export class NamedLimit {
  readonly #options: LimiterOptions
  readonly #decider: Decider
  readonly #timeoutMs: number
  readonly #onFollow: (options: LimiterOptions) => void
  /** This program's terms, or the newer ones that it follows. */
  #terms: Terms
  #limits: LimitSet
  #defining: Promise<void> | undefined
  #isDefined = false
  #sawNewer = false

  /**
   * @param onFollow called with the rule of a newer program, which then applies to this one too
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
    this.#terms = termsOf(this.#limits.definition, options.version)
  }

  /** The rule for keys without a tier. */
  get base(): Limit {
    return this.#limits.base
  }

  get isDefined(): boolean {
    return this.#isDefined
  }

  /**
   * Stores the definition, or learns the stored one. Concurrent callers share one request.
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
    this.#sawNewer = true
  }

  /** The rule for a key. @throws InvalidLimitError for an unknown tier */
  limitOf(key: LimitKey): Limit | Promise<Limit> {
    const { tierOf } = this.#options
    if (tierOf === undefined) return this.#limits.base
    const tier = tierFor(tierOf, key)
    if (typeof tier === 'string' || tier === undefined) return this.#limits.ofTier(tier)
    return tier.then((found) => this.#limits.ofTier(found))
  }

  /** Takes effect in every process at its next decision. @param mode null for the mode given in the code */
  async setMode(mode: ShapeMode | null): Promise<void> {
    const set = (control: string, at: number | '') => this.#run<ModeReply>('set-limit-mode', control, [mode ?? '', at])
    const [at, isSpread] = await set(this.#limits.control, '')
    if (isSpread || this.#options.spread) await Promise.all(this.#parts().map((part) => set(part, at)))
  }

  async #define(): Promise<void> {
    const inForce = await this.#agree(this.#terms)
    if (inForce !== this.#terms) {
      const { name, prefix, mode, tierOf } = this.#options
      const options = { ...inForce.rule, name, prefix, mode, tierOf, version: inForce.version } as LimiterOptions
      this.#terms = inForce
      this.#limits = new LimitSet(options)
      this.#onFollow(options)
    }
    this.#isDefined = true
    this.#sawNewer = false
  }

  /**
   * The control hash decides what the name means. A versioned definition is sent to the parts of a spread limit each
   * time a program starts: an earlier one may have stopped before it reached all parts. If a part has a newer
   * definition than the control hash, that hash has lost it: it is stored there again.
   */
  async #agree(own: Terms): Promise<Terms> {
    const inForce = await this.#defineAt(this.#limits.control, own)
    if (!inForce.rule.spread || (inForce.version === undefined && !this.#sawNewer)) return inForce
    const replies = await Promise.all(this.#parts().map((part) => this.#defineAt(part, inForce)))
    const newer = replies.find((terms) => terms !== inForce)
    return newer ? this.#agree(newer) : inForce
  }

  /** @returns the stored definition: the given one, or a newer one. @throws LimitConflictError */
  async #defineAt(control: string, given: Terms): Promise<Terms> {
    const { definition, version } = given
    const args = [definition, version ?? '', defaultDeclarer()]
    const [inForce, stored, storedVersion] = await this.#run<DefineReply>('define-limit', control, args)
    if (inForce === 1) return given
    const isOlder = storedVersion !== '' && (version === undefined || version < Number(storedVersion))
    if (!isOlder) throw new LimitConflictError(this.#options.name, definition, stored)
    return termsOf(stored, Number(storedVersion))
  }

  #parts(): readonly string[] {
    const { name, prefix = DEFAULT_LIMIT_PREFIX } = this.#options
    return partControls(prefix, name)
  }

  #run<T>(script: LimitScript, control: string, args: Arguments): Promise<T> {
    return this.#decider.run<T>(this.#options.name, this.#timeoutMs, script, [control], args)
  }
}

function termsOf(definition: string, version: number | undefined): Terms {
  return { definition, version, rule: JSON.parse(definition) as Rule }
}

function tierFor(tierOf: TierOf, key: LimitKey): string | undefined | Promise<string | undefined> {
  if (typeof tierOf === 'function') return tierOf(key)
  return Object.hasOwn(tierOf, String(key)) ? tierOf[String(key)] : undefined
}
