import { createHash, randomBytes } from 'node:crypto'

const ID_BYTES = 32
const LIFETIME_MS = 12 * 3_600_000
const MAX_SESSIONS = 1000

interface Session<Holder> {
  readonly holder: Holder
  readonly endsAtMs: number
}

/** Open sessions. A session ends after twelve hours, with a logout, or with this process. */
export class Sessions<Holder> {
  /** By the hash of their ids, so that the time of a look-up reveals nothing about an id. */
  readonly #sessions = new Map<string, Session<Holder>>()
  readonly #nowMs: () => number

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
  }

  get size(): number {
    return this.#sessions.size
  }

  /** @returns the id of a new session: random, and not derived from the token */
  open(holder: Holder): { readonly id: string; readonly lifetimeMs: number } {
    const nowMs = this.#nowMs()
    this.dropWhere(({ endsAtMs }) => endsAtMs <= nowMs)
    const oldest = this.#sessions.keys().next().value
    if (oldest !== undefined && this.#sessions.size >= MAX_SESSIONS) this.#sessions.delete(oldest)
    const id = randomBytes(ID_BYTES).toString('base64url')
    this.#sessions.set(keyOf(id), { holder, endsAtMs: nowMs + LIFETIME_MS })
    return { id, lifetimeMs: LIFETIME_MS }
  }

  holderOf(id: string): Holder | undefined {
    const session = this.#sessions.get(keyOf(id))
    return session && session.endsAtMs > this.#nowMs() ? session.holder : undefined
  }

  close(id: string): void {
    this.#sessions.delete(keyOf(id))
  }

  dropWhere(isOver: (session: Session<Holder>) => boolean): void {
    for (const [key, session] of this.#sessions) if (isOver(session)) this.#sessions.delete(key)
  }
}

function keyOf(id: string): string {
  return createHash('sha256').update(id).digest('base64url')
}
