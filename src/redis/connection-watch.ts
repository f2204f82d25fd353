import type { RedisOptions } from 'ioredis'
import type { Client } from './commands.ts'
import { isLoading } from './failures.ts'

/** Interval between checks of a connection, ms. */
export const LOOK_MS = 500
/** A PING is sent at every third check, if the last one was answered. */
const LOOKS_PER_ASK = 3
/**
 * A live connection that leaves a command unanswered for this many checks, and delivers nothing, is silent: detected 3
 * to 3.5 s later, at most 5 s after its last byte. A lower bound would replace all connections of a fleet whenever
 * another program's script is slow.
 */
const MOST_SILENT_LOOKS = 7
/**
 * The bound while Redis waits for replicas: for up to 5 s nothing else on the connection is answered
 * (`shape.durability`).
 */
const MOST_WAITING_LOOKS = 15
/**
 * A command gets one more check for this many bytes (1 Mbit/s), because nothing is delivered before it is complete:
 * otherwise a slower one would be resent forever. Up to the bound of an opening connection.
 */
const BYTES_PER_LOOK = 64 * 1024
/** The bound while a connection opens: a Redis that loads its data is only polled every 10 s. */
const MOST_OPENING_LOOKS = 25
/** From this check on, a silent node of a cluster is doubted: another one may have its hash slots by now. */
const DOUBTED_LOOKS = 2
/** A later check is not counted, ms: the program was suspended or busy, and may not have read arrived data yet. */
const LATE_LOOK_MS = 2 * LOOK_MS

/** The watch's view of a connection. */
export interface Watched {
  /** `away` if there is no socket. `dialling` is left alone too, because it has its own timeout. */
  state(): 'live' | 'opening' | 'dialling' | 'away'
  /** Whether Redis waits for replicas on our request, and has not answered yet. */
  waits?(): boolean
  /** Whether a command is unanswered. */
  owes?(): boolean
  /** Size of the command that is answered next. */
  owedBytes?(): number
  /** Changes with everything received; constant if unknown. */
  received(): number
  /** Sends a command that Redis answers at once; undefined: nothing is sent on this connection. */
  ask(): Promise<unknown> | undefined
  /** Called at each check while nothing has arrived for some time. */
  doubt?(): void
  /** The connection is silent and will not recover. */
  replace(): void
  /**
   * Redis has loaded its data again and serves, and the connection stayed: clients that wait for a key are not
   * notified.
   */
  loaded?(): void
}

/**
 * Detects a half-open connection: its packets are dropped, and neither end closes it. The kernel would notice only
 * after a quarter of an hour.
 */
export class SilenceWatch {
  readonly #watched: Watched
  #asked = false
  #loads = false
  /** When the last answered check was sent, ms of `performance.now()`. */
  answeredPingMs = Number.NEGATIVE_INFINITY
  #received = 0
  #silentLooks = 0
  #looksUntilAsk = 0
  #lookedAtMs = Number.POSITIVE_INFINITY

  constructor(watched: Watched) {
    this.#watched = watched
  }

  /** Called every {@link LOOK_MS}. */
  look(): void {
    const state = this.#watched.state()
    const isLate = this.#isLate()
    const received = this.#watched.received()
    const opens = state === 'opening' || state === 'dialling'
    const waits = opens || (state === 'live' && (this.#asked || this.#watched.owes?.() === true))
    if (!waits || received !== this.#received) this.#silentLooks = 0
    else if (!isLate) this.#silentLooks += 1
    this.#received = received
    this.#looksUntilAsk -= 1
    if (this.#silentLooks >= DOUBTED_LOOKS) this.#watched.doubt?.()
    if (this.#silentLooks >= this.#mostLooks(state)) {
      this.#silentLooks = 0
      this.#asked = false
      this.#watched.replace()
    } else if (state === 'live' && !this.#asked && this.#looksUntilAsk <= 0) this.#ask()
  }

  #isLate(): boolean {
    const before = this.#lookedAtMs
    this.#lookedAtMs = performance.now()
    return this.#lookedAtMs - before > LATE_LOOK_MS
  }

  #mostLooks(state: ReturnType<Watched['state']>): number {
    if (state === 'dialling') return Number.POSITIVE_INFINITY
    if (state === 'opening') return MOST_OPENING_LOOKS
    if (this.#watched.waits?.()) return MOST_WAITING_LOOKS
    if (this.#silentLooks < MOST_SILENT_LOOKS) return MOST_SILENT_LOOKS
    const sending = Math.floor((this.#watched.owedBytes?.() ?? 0) / BYTES_PER_LOOK)
    return Math.min(MOST_SILENT_LOOKS + sending, MOST_OPENING_LOOKS)
  }

  #ask(): void {
    const answer = this.#watched.ask()
    if (!answer) return
    this.#asked = true
    this.#looksUntilAsk = LOOKS_PER_ASK
    const askedMs = performance.now()
    const ended = () => {
      this.#asked = false
    }
    answer.then(
      () => {
        this.answeredPingMs = askedMs
        ended()
        if (this.#loads) this.#watched.loaded?.()
        this.#loads = false
      },
      (error: Error) => {
        ended()
        if (isLoading(error)) this.#loads = true
      },
    )
  }
}

/** Calls `look` at the interval until stopped; does not keep the process alive. @returns a function that stops it */
export function everyLook(look: () => void): () => void {
  const timer = setInterval(look, LOOK_MS).unref()
  return () => clearInterval(timer)
}

interface SentCommand {
  readonly name: string
  readonly args?: readonly unknown[]
}

/** The parts of ioredis that we use beyond its types. Other clients have no socket to inspect and are left alone. */
interface Socketed {
  readonly status: string
  readonly options?: Pick<RedisOptions, 'failoverDetector' | 'host' | 'port'>
  /** Set while the program closes it. */
  readonly manuallyClosing?: boolean
  on?(event: string, listener: () => void): unknown
  off?(event: string, listener: () => void): unknown
  connect(): Promise<unknown>
  readonly stream?: { readonly bytesRead: number; destroy(error?: Error): unknown }
  /** Sent but unanswered commands. */
  readonly commandQueue?: { peekFront(): { readonly command: SentCommand } | undefined }
  ping(): Promise<unknown>
}

function bytesOf(args: readonly unknown[]): number {
  let bytes = 0
  for (const arg of args) if (typeof arg === 'string' || Buffer.isBuffer(arg)) bytes += Buffer.byteLength(arg)
  return bytes
}

interface Clustered extends Socketed {
  readonly isCluster?: boolean
  nodes?(): Socketed[]
  /** Asks a node for the owners of the hash slots, and leaves nodes without any. */
  getInfoFromNode?(node: Socketed, done: () => void): void
}

const STATES = { ready: 'live', connect: 'opening', connecting: 'dialling' } as const

/** Blocking commands, which BullMQ replaces when they take too long. */
const BLOCKING: readonly string[] = ['bzpopmin', 'xread']

/** @param asks whether to send PING: not where BullMQ's commands block, which have timeouts of their own */
function watchedNode(client: Clustered, node: Socketed, asks: boolean, loaded: () => void): Watched {
  const first = () => node.commandQueue?.peekFront()?.command
  return {
    state: () => (node.stream && STATES[node.status as keyof typeof STATES]) ?? 'away',
    doubt: () => client.isCluster && askAnother(client, node),
    waits: () => first()?.name === 'wait',
    // Before it blocks, BullMQ asks for the version of Redis, and waits for the answer.
    owes: () => {
      const command = first()
      return command !== undefined && (asks || !BLOCKING.includes(command.name))
    },
    owedBytes: () => bytesOf(first()?.args ?? []),
    received: () => node.stream?.bytesRead ?? 0,
    ask: () => (asks ? node.ping() : undefined),
    // As if the socket had been closed: ioredis opens a new one and resends unanswered commands.
    replace: () => node.stream?.destroy(new Error('Connection is silent: Redis did not answer PING; it is replaced')),
    loaded,
  }
}

interface Shared {
  /** One callback per user: called when Redis has loaded its data again. */
  readonly loaded: Set<() => void>
  stop(): void
}

/** Clients of the program may be shared by many queues. */
const shared = new WeakMap<object, Shared>()

/** Options of a user of a client. */
interface WatchOptions {
  /** Another client of the same cluster, which notices what this one does not. */
  readonly other?: Client
  /** Redis has loaded its data again under a connection that stayed. */
  readonly loaded?: () => void
}

/**
 * Replaces the sockets of a client that become silent; on a cluster, those of each node.
 * @param asks as for one node
 * @returns a function that stops watching
 */
export function watchConnection(client: Client, asks: boolean, { other, loaded }: WatchOptions = {}): () => void {
  const watch = shared.get(client) ?? startWatch(client as unknown as Clustered, asks, other as Clustered | undefined)
  shared.set(client, watch)
  const user = () => loaded?.()
  watch.loaded.add(user)
  return () => {
    if (!watch.loaded.delete(user) || watch.loaded.size > 0) return
    watch.stop()
    shared.delete(client)
  }
}

/** Closes the sockets of a client: ioredis opens new ones, and resends unanswered commands. */
export function reopenConnection(client: Client): void {
  for (const { stream } of nodesOf(client as unknown as Clustered)) stream?.destroy()
}

/** The parts of a client that ioredis may end. */
type Endable = Partial<Pick<Socketed, 'status' | 'options' | 'on' | 'off'>>

/** Clients that were closed since they last connected: the program or its options ended them. */
const closed = new WeakSet<Endable>()

/** For {@link hasGivenUp}. @returns a function that ends it */
export function noteCloses(client: Endable): () => void {
  const closes = () => void closed.add(client)
  const connects = () => void closed.delete(client)
  client.on?.('close', closes)
  client.on?.('connecting', connects)
  return () => {
    client.off?.('close', closes)
    client.off?.('connecting', connects)
  }
}

/** With a `failoverDetector`, ioredis ends a client finally if a Sentinel names another master while it connects. */
export function hasGivenUp(client: Endable): boolean {
  const { status, options, manuallyClosing } = client as Partial<Socketed>
  return status === 'end' && options?.failoverDetector === true && manuallyClosing !== true && !closed.has(client)
}

const asking = new WeakSet<Socketed>()

/** Asks another node for the owners of the hash slots: ioredis might ask this one, and wait for a second. */
function askAnother(client: Clustered, silent: Socketed): void {
  if (client.status !== 'ready' || asking.has(silent)) return
  const others = client.nodes?.().filter((node) => node !== silent) ?? []
  const other = others[Math.floor(Math.random() * others.length)]
  if (!other) return
  asking.add(silent)
  client.getInfoFromNode?.(other, () => {
    asking.delete(silent)
    leave(client, silent)
  })
}

/**
 * ioredis leaves a node without hash slots, and then resends unanswered commands to others, but waits 2 s for the node
 * to close the connection.
 */
function leave(client: Clustered, silent: Socketed): void {
  if (client.nodes?.().includes(silent)) return
  silent.stream?.destroy(new Error('Connection is silent, and another node of the cluster has its slots'))
}

/** A connected node that the other client has left. The other may not know nodes that it never used. */
function leftBy(other: Clustered, client: Clustered): Socketed | undefined {
  const keyOf = ({ options }: Socketed) => `${options?.host}:${options?.port}`
  const known = new Set(other.nodes?.().map(keyOf))
  return client.nodes?.().find((node) => node.status in STATES && !known.has(keyOf(node)))
}

function nodesOf(client: Clustered): readonly Socketed[] {
  return client.isCluster ? (client.nodes?.() ?? []) : [client]
}

function startWatch(client: Clustered, asks: boolean, other: Clustered | undefined): Shared {
  const watches = new WeakMap<Socketed, SilenceWatch>()
  const users = new Set<() => void>()
  const loaded = () => {
    for (const user of users) user()
  }
  const stopNoting = noteCloses(client)
  const stopLooking = everyLook(() => {
    for (const node of nodesOf(client)) {
      const watch = watches.get(node) ?? new SilenceWatch(watchedNode(client, node, asks, loaded))
      watches.set(node, watch)
      watch.look()
      if (hasGivenUp(node)) node.connect().catch(() => undefined)
    }
    const left = other?.isCluster && other.status === 'ready' && leftBy(other, client)
    if (left) askAnother(client, left)
  })
  const stop = () => {
    stopLooking()
    stopNoting()
  }
  return { loaded: users, stop }
}
