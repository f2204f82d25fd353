import { EventEmitter } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { InvalidInputError, InvalidLimitError, LimitConflictError, NoGroupsError, SluiceError } from '../errors.ts'
import { hashTag } from '../limits/limit-keys.ts'
import { decodeQueueLimits } from '../limits/queue-limits.ts'
import { type Argument, type Client, runScript } from '../redis/commands.ts'
import { uniqueId } from '../redis/ids.ts'
import { queueNameOf, shapeKey } from '../redis/keys.ts'
import { untilCertain } from '../redis/resends.ts'
import type { ScriptSet } from '../redis/scripts.ts'
import { enlistShapedQueue } from '../redis/shaped-queues.ts'
import { untilMoved } from '../redis/until-served.ts'
import { checkGroupId } from './groups.ts'
import { decodeField, isSameValue, lacksGroups, type ShapeValue, type StoredValue } from './shape.ts'
import { StoredShape } from './stored.ts'

/** The declaration by code: checked values, and the declarer's name. */
export interface Declaration {
  readonly fields: Readonly<Record<string, StoredValue>>
  readonly version: number | undefined
  readonly declarer: string
}

/** Two live processes declare different values for one field of a shape. */
export interface ShapeConflict {
  readonly field: string
  readonly declared: ShapeValue
  readonly declarer: string
  readonly otherDeclared: ShapeValue
  readonly otherDeclarer: string
}

export interface StateLoss {
  /** `hold`: the bucket was filled, so nothing departs for `holdMs`; `burst`: it starts empty. */
  readonly policy: 'hold' | 'burst'
  readonly holdMs: number
}

interface StoreEvents {
  shape: [shape: StoredShape, before: StoredShape | undefined]
  stateLoss: [loss: StateLoss]
  shapeConflict: [conflict: ShapeConflict]
}

/** Author and reason of a change at run time, for the history. */
export interface Attribution {
  readonly by?: string | undefined
  readonly reason?: string | undefined
}

/** How a pause ends: at a time (ms since 1970), after a duration (ms), or now. */
export type PauseChange =
  | { readonly kind: 'until' | 'for'; readonly ms: number; readonly reason: string; readonly by?: string | undefined }
  | { readonly kind: 'clear'; readonly reason?: string | undefined; readonly by?: string | undefined }

const MAX_RESTORES = 3

/** The status of a script that changes the shape, and the shape. */
type ShapeReply = [status: number, shape: string[]]

const LOST = -1
const LIMIT_CONFLICT = -5
const NO_GROUPS = -7
const NO_LIMIT = -12
const LACKS_GROUPS = -9

/** Common fields of all views of a queue: Redis's time, µs, and the fields of the current shape. */
export interface ShapeView {
  readonly at: string
  readonly shape?: Readonly<Record<string, string>>
}

/** The shape of one queue, in Redis and in this process's memory. */
export class ShapeStore extends EventEmitter<StoreEvents> {
  readonly memory: ShapeMemory
  readonly key: string
  /** The queue's key prefix, with its colon. */
  readonly base: string
  readonly #client: () => Promise<Client>
  readonly #scripts: ScriptSet
  #declaration: Declaration | undefined
  #before: (() => Promise<void>) | undefined
  #declaring: Promise<void> | undefined
  #looked = false
  #restoring: Promise<void> | undefined

  constructor(base: string, client: () => Promise<Client>, scripts: ScriptSet) {
    super()
    this.key = shapeKey(base)
    this.base = base
    this.#client = client
    this.#scripts = scripts
    this.memory = new ShapeMemory((shape, before) => {
      if (!before) this.#register()
      this.emit('shape', shape, before)
      this.#findConflicts(shape, before)
    })
  }

  /** Sets the declaration that this process stores before it admits or fetches anything. */
  declare(declaration: Declaration): void {
    this.#declaration = declaration
  }

  /** Sets a check that must succeed before this process declares or reads the shape. */
  declareAfter(check: () => Promise<void>): void {
    this.#before = check
  }

  /**
   * Resolves once the declaration is stored or, without one, once the stored shape is known; undefined if there is
   * nothing to wait for. A failure is retried at the next call.
   */
  prepared(): Promise<void> | undefined {
    if (this.memory.stored || (!this.#declaration && this.#looked)) return undefined
    this.#declaring ??= this.#prepare().catch((error: unknown) => {
      this.#declaring = undefined
      throw error
    })
    return this.#declaring
  }

  /** After a deliberate obliterate: nothing is restored, but the local declaration applies again. */
  forget(): void {
    this.memory.forget()
    this.#declaring = undefined
    this.#looked = false
  }

  /**
   * On a cluster, scripts reach the keys of one hash slot only.
   * @param limits as stored, if there are any
   * @throws InvalidLimitError
   */
  async #checkSlots(limits: unknown): Promise<void> {
    if (typeof limits !== 'string' || !(await this.#client()).isCluster) return
    const tag = hashTag(this.base)
    for (const { name, shared, prefix } of decodeQueueLimits(limits)) {
      if (!shared || prefix === undefined || hashTag(prefix) === tag) continue
      throw new InvalidLimitError(
        `limit "${name}" is shared under the prefix '${prefix}', which on a Redis Cluster must have the hash tag of the queue's: ` +
          `leave prefix out, or use '{${tag}}', also for limiters and other queues`,
      )
    }
  }

  /** Restores what Redis has lost, once for concurrent callers. */
  async restore(): Promise<void> {
    this.#restoring ??= this.#restore().finally(() => {
      this.#restoring = undefined
    })
    return this.#restoring
  }

  /** Sets and lifts overrides; `clearFirst` lifts all others. */
  async override(
    changes: Readonly<Record<string, StoredValue | null | { readonly clear: true }>>,
    by: string,
    reason: string,
    ttlMs: number | undefined,
    clearFirst = false,
  ): Promise<void> {
    checkTtl(ttlMs)
    await this.#checkSlots(changes.limits)
    const args = [JSON.stringify(changes), by, reason, ttlMs ?? '', clearFirst ? '1' : '0']
    await this.change('override-shape', args)
  }

  async pause(change: PauseChange): Promise<void> {
    const ms = change.kind === 'clear' ? 0 : change.ms
    await this.change('pause-meter', [change.kind, ms, change.reason ?? ''], [change.by ?? ''])
  }

  /** Records in the history an action outside the shape. */
  async note(
    kind: 'pause' | 'resume' | 'redrive' | 'job',
    change: Readonly<Record<string, unknown>>,
    who: Attribution,
  ) {
    await this.run('note-history', [kind, who.by ?? '', who.reason ?? '', JSON.stringify(change)])
  }

  /** The result of `lua/verbs/view.lua` for a subject; undefined if there is none. */
  async view<T>(subject: string, asked: object = {}): Promise<T | undefined> {
    const [json] = (await this.run('view', [subject, JSON.stringify(asked), '', ''])) as readonly string[]
    return (JSON.parse(json as string) as T | null) ?? undefined
  }

  /** The same for the meter, whose shape this process adopts. */
  async readMeter<T extends ShapeView>(): Promise<T> {
    await this.prepared()
    const view = (await this.view<T>('meter')) as T
    this.memory.learn(view.shape)
    return view
  }

  /** The rest of the meter's pause, ms (0: there is none), and its reason. */
  async readPause(): Promise<{ leftMs: number; reason: string | undefined }> {
    const { at, shape } = await this.readMeter()
    if (!shape) return { leftMs: 0, reason: undefined }
    const stored = new StoredShape(shape)
    const leftMs = Math.max(0, Math.ceil((stored.pausedUntilUs - Number(at)) / 1000))
    return { leftMs, reason: stored.effective().pauseReason }
  }

  /**
   * Runs one of our scripts whose only key is the shape. A script that is sent once (`redis/scripts.ts`) gets an
   * additional argument if the call may have run already: when it was first sent.
   */
  async run(name: string, args: readonly Argument[]): Promise<unknown> {
    const client = await this.#client()
    const command = this.#scripts.command(name)
    const send = (sentUs?: number) =>
      untilMoved(() => runScript(client, command, [this.key, ...args, ...(sentUs === undefined ? [] : [sentUs])]))
    return untilCertain(send)()
  }

  /** Lists this queue for tools that look for queues. Nothing else depends on it, so no caller waits for it. */
  #register(): void {
    this.#client()
      .then((client) => enlistShapedQueue(client, this.base))
      .catch(() => undefined)
  }

  async #prepare(): Promise<void> {
    await this.#before?.()
    return this.#declaration ? this.#storeDeclaration() : this.#look()
  }

  // Whether a repeated call is safe depends on the shape, so it must be known before the first call.
  async #look(): Promise<void> {
    this.memory.learn((await this.view<ShapeView>('shape'))?.shape)
    this.#looked = true
  }

  async #storeDeclaration(): Promise<void> {
    const { fields, version, declarer } = this.#declaration as Declaration
    await this.#checkSlots(fields.limits)
    const raw = (await this.run('declare-shape', [JSON.stringify(fields), version ?? '', declarer])) as ShapeReply
    throwRefusal(raw)
    this.memory.learn(raw[1])
  }

  /**
   * Runs a script that changes the shape, after restoring lost state.
   * @param after arguments that follow the identity of the shape
   * @returns the script's reply: its status, the shape, and the rest
   * @throws LimitConflictError, InvalidShapeError
   */
  async change(
    script: string,
    args: readonly Argument[],
    after: readonly Argument[] = [],
  ): Promise<readonly unknown[]> {
    await this.prepared()
    for (let attempt = 0; ; attempt++) {
      const raw = (await this.run(script, [...args, this.memory.identity, ...after])) as ShapeReply
      throwRefusal(raw)
      this.memory.learn(raw[1])
      // Lost state is restored before the change; otherwise the change would be all that is stored.
      if (raw[0] === 1) return raw
      await this.#restoreAgain(attempt)
    }
  }

  async #restoreAgain(attempt: number): Promise<void> {
    if (attempt < MAX_RESTORES) return this.restore()
    throw new SluiceError(`Redis keeps losing the shape of ${this.key}: it was restored ${MAX_RESTORES} times`)
  }

  /**
   * Changes the settings of one group, after restoring lost state.
   * @throws InvalidGroupError, NoGroupsError
   */
  async changeGroup(id: string, fields: object, who: Attribution, ttlMs?: number): Promise<void> {
    checkGroupId(id)
    const status = await this.#changePart('set-group', [id], { fields, who, ttlMs })
    if (status === NO_GROUPS) throw new NoGroupsError(queueNameOf(this.base))
  }

  /**
   * Changes what a limit allows for one value of its keys, in the same way.
   * @returns whether the queue has a limit of this name with exactly these keys
   */
  async changeLimit(
    name: string,
    keys: Readonly<Record<string, string>>,
    fields: object,
    who: Attribution,
    ttlMs?: number,
  ): Promise<boolean> {
    return (await this.#changePart('set-limit', [name, JSON.stringify(keys)], { fields, who, ttlMs })) !== NO_LIMIT
  }

  /**
   * Charges a limit for one value of its keys, once even if the call is resent.
   * @returns as {@link changeLimit}
   */
  async chargeLimit(name: string, keys: Readonly<Record<string, string>>, cost: number): Promise<boolean> {
    await this.prepared()
    const args = [name, JSON.stringify(keys), cost, uniqueId()]
    return (await this.#runRestoring('charge-limit', args)) !== NO_LIMIT
  }

  async #changePart(
    script: 'set-group' | 'set-limit',
    what: readonly string[],
    { fields, who, ttlMs }: { readonly fields: object; readonly who: Attribution; readonly ttlMs: number | undefined },
  ): Promise<unknown> {
    checkTtl(ttlMs)
    await this.prepared()
    return this.#runRestoring(script, [
      ...what,
      JSON.stringify(fields),
      who.by ?? '',
      who.reason ?? '',
      ttlMs ?? '',
      '',
    ])
  }

  /** @returns the status of a script, which gets the identity of the shape last, once nothing is lost */
  async #runRestoring(script: string, args: readonly Argument[]): Promise<unknown> {
    for (let attempt = 0; ; attempt++) {
      const [status, , shape] = (await this.run(script, [...args, this.memory.identity])) as readonly unknown[]
      this.memory.learn(shape as readonly string[] | undefined)
      if (status !== LOST) return status
      await this.#restoreAgain(attempt)
    }
  }

  async #restore(): Promise<void> {
    // The message that the queue was obliterated may have arrived with the reply that misses the shape.
    await setImmediate()
    const known = this.memory.stored
    if (!known) return
    const args = [known.identity, ...known.flat()]
    const [restored, shape, holdUs] = (await this.run('restore-shape', args)) as [number, string[], number]
    this.memory.learn(shape)
    // Along with the shape, Redis lost the queue's entry in the list.
    this.#register()
    if (restored !== 1) return
    const policy = known.effective().onStateLoss
    this.emit('stateLoss', { policy, holdMs: Number(holdUs) / 1000 })
  }

  // The value declared here applied and no longer does. Another process with the same declaration may have stored it.
  #findConflicts(shape: StoredShape, before: StoredShape | undefined): void {
    const mine = this.#declaration
    if (!before || !mine) return
    const previous = before.declared()
    for (const [field, entry] of Object.entries(shape.declared())) {
      const value = mine.fields[field]
      if (value === undefined || entry.by === mine.declarer) continue
      const declared = decodeField(field, value)
      if (!isSameValue(previous[field]?.value, declared) || isSameValue(entry.value, declared)) continue
      this.emit('shapeConflict', {
        field,
        declared,
        declarer: mine.declarer,
        otherDeclared: entry.value,
        otherDeclarer: entry.by,
      })
    }
  }
}

/** @throws InvalidInputError */
function checkTtl(ttlMs: number | undefined): void {
  if (ttlMs === undefined || (Number.isFinite(ttlMs) && ttlMs > 0)) return
  throw new InvalidInputError(`ttlMs must be a number of ms > 0; got ${ttlMs}`)
}

/** @throws LimitConflictError, InvalidShapeError */
function throwRefusal([status, detail]: ShapeReply): void {
  if (status === LACKS_GROUPS) throw lacksGroups('a limit in shape.limits')
  if (status !== LIMIT_CONFLICT) return
  const [name, given, stored] = detail as [string, string, string]
  throw new LimitConflictError(name, given, stored)
}

/**
 * A process's knowledge of a queue's shape. Its identity goes with every call, so that Redis can detect a loss; the
 * shape itself is then restored from here.
 */
class ShapeMemory {
  #stored: StoredShape | undefined
  readonly #onChange: (shape: StoredShape, before: StoredShape | undefined) => void

  constructor(onChange: (shape: StoredShape, before: StoredShape | undefined) => void = () => {}) {
    this.#onChange = onChange
  }

  get stored(): StoredShape | undefined {
    return this.#stored
  }

  /** The form for scripts; '' if nothing is known. */
  get identity(): string {
    return this.#stored?.identity ?? ''
  }

  /** Adopts the shape of a reply, if there is one. */
  learn(stored: readonly string[] | ShapeView['shape'] | null | undefined): void {
    if (!stored || stored.length === 0) return
    const before = this.#stored
    const shape = new StoredShape(stored)
    if (before && before.id === shape.id && Number(before.revision) >= Number(shape.revision)) return
    this.#stored = shape
    this.#onChange(shape, before)
  }

  /** After a deliberate obliterate: nothing is restored. */
  forget(): void {
    this.#stored = undefined
  }
}
