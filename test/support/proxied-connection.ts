import { connect, type Socket } from 'node:net'
import { DelayLine } from './delay-line.ts'
import { commandWords, RespSplitter } from './resp.ts'

/** One request to drop replies. */
export interface DropRule {
  predicate: (command: string[]) => boolean
  /** Number of replies still to be dropped. */
  left: number
  /** Matched commands whose replies have not arrived yet. */
  pending: number
  /** Number of bytes of the reply that are delivered before the connection closes. */
  deliverBytes: number
  /** Whether the connection stays open, with nothing more delivered on it. */
  holdOpen: boolean
  done: () => void
}

/** The current conditions of all connections of the proxy; they may change at any time. */
export interface ProxyConditions {
  swallow: boolean
  oneWayMs: number
  /** Each millisecond delivers one piece of at most so many bytes in each direction; 0 delivers all at once. */
  pieceBytes: number
  rules: DropRule[]
}

/** The item of a delay line that closes the connection after everything before it. */
const END = Symbol('end')

/**
 * One client's connection through the proxy. Commands and replies are matched by counting: Redis answers in order, so
 * the n-th reply belongs to the n-th command. `#awaited` holds, for each command without a reply, the rule that drops
 * its reply, or undefined. Replies are passed on as whole values.
 */
export class ProxiedConnection {
  /** Whether a black hole swallowed data, so that the two sides are out of step. */
  broken = false
  readonly #client: Socket
  readonly #server: Socket
  readonly #conditions: ProxyConditions
  readonly #onClose: (connection: ProxiedConnection) => void
  readonly #commands = new RespSplitter()
  readonly #replies = new RespSplitter()
  readonly #awaited: (DropRule | undefined)[] = []
  readonly #toServer: DelayLine<Buffer>
  readonly #toClient: DelayLine<Buffer | typeof END>
  /** A connection that subscribes gets unrequested messages, so its replies cannot be counted. */
  #counting = true
  #closed = false
  #dropped = false
  readonly #silent = new Set<'requests' | 'replies'>()

  constructor(
    client: Socket,
    target: { host: string; port: number },
    conditions: ProxyConditions,
    onClose: (connection: ProxiedConnection) => void,
  ) {
    this.#client = client
    this.#conditions = conditions
    this.#onClose = onClose
    this.#server = connect({ ...target, noDelay: true })
    this.#toServer = new DelayLine((bytes) => this.#server.write(bytes))
    this.#toClient = new DelayLine((item) => (item === END ? this.#end() : this.#client.write(item)))
    client.on('data', (chunk) => this.#fromClient(chunk))
    this.#server.on('data', (chunk) => this.#fromServer(chunk))
    // An error is followed by `close`.
    client.on('error', () => {})
    this.#server.on('error', () => {})
    client.on('close', () => this.#unlessSwallowed(() => this.silent || this.destroy()))
    this.#server.on('close', () => this.#unlessSwallowed(() => this.#toClient.push(END, conditions.oneWayMs)))
  }

  get silent(): boolean {
    return this.#silent.size > 0
  }

  /** From now on nothing is delivered in this direction, or in both, and no close of the connection is passed on. */
  silence(direction?: 'requests' | 'replies'): void {
    for (const silent of direction ? [direction] : (['requests', 'replies'] as const)) this.#silent.add(silent)
  }

  /** Closes both sides at once; data in transit is lost. */
  destroy(): void {
    if (this.#closed) return
    this.#client.destroy()
    this.#finish()
  }

  /** Closes the client's side once it has received what was written to it. */
  #end(): void {
    if (this.#closed) return
    this.#client.destroySoon()
    this.#finish()
  }

  #finish(): void {
    this.#closed = true
    this.#toServer.clear()
    this.#toClient.clear()
    this.#server.destroy()
    for (const rule of this.#awaited) if (rule) rule.pending -= 1
    this.#onClose(this)
  }

  #fromClient(chunk: Buffer): void {
    if (this.#silent.has('requests')) return
    this.#unlessSwallowed(() => {
      if (this.#counting) {
        for (const { raw } of this.#commands.push(chunk)) this.#expectReply(commandWords(raw))
      }
      this.#deliver(this.#toServer, chunk)
    })
  }

  #expectReply(words: string[] | undefined): void {
    if (words === undefined || /^(S|P)?SUBSCRIBE$|^MONITOR$/i.test(words[0] ?? '')) {
      this.#counting = false
      return
    }
    const rule = this.#conditions.rules.find(({ left, pending, predicate }) => left > pending && predicate(words))
    if (rule) rule.pending += 1
    this.#awaited.push(rule)
  }

  #fromServer(chunk: Buffer): void {
    if (this.#dropped || this.#silent.has('replies')) return
    this.#unlessSwallowed(() => {
      const frames = this.#replies.push(chunk)
      for (const { raw, type } of frames) {
        const rule = type === '>' ? undefined : this.#awaited.shift()
        if (rule) {
          this.#drop(rule, raw)
          return
        }
        this.#deliver(this.#toClient, raw)
      }
    })
  }

  /** Puts bytes on a line, whole or in pieces. */
  #deliver(line: { push(bytes: Buffer, delayMs: number): void }, bytes: Buffer): void {
    const { oneWayMs, pieceBytes } = this.#conditions
    const size = pieceBytes === 0 ? bytes.length : pieceBytes
    for (let i = 0; i * size < bytes.length; i++) {
      line.push(bytes.subarray(i * size, (i + 1) * size), oneWayMs + i)
    }
  }

  #drop(rule: DropRule, reply: Buffer): void {
    this.#dropped = true
    rule.pending -= 1
    rule.left -= 1
    if (rule.deliverBytes > 0) this.#toClient.push(reply.subarray(0, rule.deliverBytes), this.#conditions.oneWayMs)
    if (!rule.holdOpen) this.#toClient.push(END, this.#conditions.oneWayMs)
    if (rule.left === 0) {
      this.#conditions.rules.splice(this.#conditions.rules.indexOf(rule), 1)
      rule.done()
    }
  }

  #unlessSwallowed(pass: () => void): void {
    if (this.#conditions.swallow) this.broken = true
    else pass()
  }
}
