import type { Client } from './commands.ts'

/** Between two looks at a connection, ms. A program that was stopped or busy for longer has had one look, not many. */
export const LOOK_MS = 2500
/** A live connection that leaves a question unanswered for so many looks is silent: found 7.5 to 10 s after its last byte. */
const MOST_SILENT_LOOKS = 3
/** One that is being opened has longer: a Redis that loads its data is asked only every 10 s. */
const MOST_OPENING_LOOKS = 5

/** What a watch does with a connection. */
export interface Watched {
  /** `away` where there is no socket: whoever opens the next one has a timeout for that. */
  state(): 'live' | 'opening' | 'away'
  /** Grows, or changes, with whatever is received; always the same where that is not known. */
  received(): number
  /** Sends something that Redis answers at once; undefined: nothing is asked on it. */
  ask(): Promise<unknown> | undefined
  /** It is silent: nothing will come of it any more. */
  replace(): void
}

/**
 * Finds out that a connection is half-open: its packets are dropped, and neither side closes it. The kernel would
 * notice after a quarter of an hour.
 */
export class SilenceWatch {
  readonly #watched: Watched
  #asked = false
  #received = 0
  #silentLooks = 0

  constructor(watched: Watched) {
    this.#watched = watched
  }

  /** Called every {@link LOOK_MS}. */
  look(): void {
    const state = this.#watched.state()
    const received = this.#watched.received()
    const waits = state === 'opening' || (state === 'live' && this.#asked)
    this.#silentLooks = waits && received === this.#received ? this.#silentLooks + 1 : 0
    this.#received = received
    if (this.#silentLooks >= (state === 'opening' ? MOST_OPENING_LOOKS : MOST_SILENT_LOOKS)) {
      this.#silentLooks = 0
      this.#asked = false
      this.#watched.replace()
    } else if (state === 'live' && !this.#asked) this.#ask()
  }

  #ask(): void {
    const answer = this.#watched.ask()
    if (!answer) return
    this.#asked = true
    const answered = () => {
      this.#asked = false
    }
    answer.then(answered, answered)
  }
}

/** Calls a look until it is stopped; it keeps no process alive. @returns stops it */
export function everyLook(look: () => void): () => void {
  const timer = setInterval(look, LOOK_MS).unref()
  return () => clearInterval(timer)
}

/** What is used of ioredis beyond its types: other clients have no socket to look at, and are left alone. */
interface Socketed {
  readonly status: string
  readonly stream?: { readonly bytesRead: number; destroy(error: Error): unknown }
  ping(): Promise<unknown>
}

/** @param asks whether PING is sent: not where commands of BullMQ block, which have time-outs of their own */
function watchedNode(node: Socketed, asks: boolean): Watched {
  return {
    state: () => {
      if (!node.stream) return 'away'
      return node.status === 'ready' ? 'live' : node.status === 'connect' ? 'opening' : 'away'
    },
    received: () => node.stream?.bytesRead ?? 0,
    ask: () => (asks ? node.ping() : undefined),
    // As if it had been closed: ioredis opens the next one, and sends again what was not answered.
    replace: () => node.stream?.destroy(new Error('Connection is silent: Redis did not answer PING; it is replaced')),
  }
}

interface Shared {
  users: number
  stop(): void
}

/** Clients of the program may be shared by many queues. */
const shared = new WeakMap<object, Shared>()

/**
 * Replaces the sockets of a client that fall silent, each node's of a cluster.
 * @param asks as for one node
 * @returns stops watching
 */
export function watchConnection(client: Client, asks: boolean): () => void {
  const watch = shared.get(client) ?? { users: 0, stop: startWatch(client as unknown as Socketed, asks) }
  shared.set(client, watch)
  watch.users += 1
  let stopped = false
  return () => {
    if (stopped) return
    stopped = true
    watch.users -= 1
    if (watch.users > 0) return
    watch.stop()
    shared.delete(client)
  }
}

function startWatch(client: Socketed & { readonly isCluster?: boolean; nodes?(): Socketed[] }, asks: boolean) {
  const watches = new WeakMap<Socketed, SilenceWatch>()
  return everyLook(() => {
    for (const node of client.isCluster ? (client.nodes?.() ?? []) : [client]) {
      const watch = watches.get(node) ?? new SilenceWatch(watchedNode(node, asks))
      watches.set(node, watch)
      watch.look()
    }
  })
}
