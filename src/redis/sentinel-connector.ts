import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Redis, type SentinelConnectionOptions, SentinelConnector } from 'ioredis'
import { withinMs } from './deadlines.ts'

/** After this many failures to reach the named server, every second attempt believes a single Sentinel. */
const TRUSTED_ATTEMPTS = 20
/** Once one Sentinel has answered, the others have this long, ms: one may be on the lost machine. */
const OTHERS_MS = 200
/**
 * The channel on which a Sentinel reports that a master was replaced: its name, the old host and port, the new host and
 * port.
 */
const SWITCHED = '+switch-master'
/**
 * The channel on which the Sentinel that leads a failover reports, up to 0.1 s ahead, that it promotes a replica, which
 * has now become the master: the type, name, host and port of the replica, `@`, and name, host and port of the master.
 */
const PROMOTES = '+failover-state-send-slaveof-noone'
const PROMOTED = '+promoted-slave'
/** Longest wait for a promotion, ms: the Sentinel checks for it once a second. If it fails, the master stays. */
const PROMOTION_MS = 3000

interface Endpoint {
  readonly host?: string
  readonly port?: number
}

/** ioredis has defaults for some. */
type ConnectorOptions = SentinelConnectionOptions & {
  readonly name: string
  readonly connectTimeout: number
  readonly sentinelMaxConnections: number
}

/** The parts of ioredis's connector that we use beyond its types. */
interface IoredisConnector {
  readonly options: ConnectorOptions
  readonly sentinelIterator: {
    readonly sentinels: Endpoint[]
    next(): { readonly done: boolean }
    reset(first: boolean): void
  }
  readonly stream?: Socket
  /** Until it is disconnected. */
  readonly connecting: boolean
  failoverDetector: { cleanup(): void } | null
  connect(emitter: unknown): Promise<Socket>
  disconnect(): void
  check(info: { role?: string }): boolean
  resolve(sentinel: Endpoint): Promise<Endpoint | null>
  connectToSentinel(sentinel: Endpoint, options?: object): Redis
  updateSentinels(client: Redis): Promise<void>
  sentinelNatResolve(address: Endpoint): Endpoint
}

const Base = SentinelConnector as unknown as new (options: ConnectorOptions) => IoredisConnector

interface SentinelReply {
  /** Grows with each failover. */
  readonly epoch: number
  readonly address: Required<Endpoint>
}

const keyOf = ({ host, port }: Endpoint) => `${host}:${port}`
const ignore = () => {}

/** A master that will soon be replaced: writes to it are lost. */
interface Leaving {
  readonly key: string
  /** Resolves once another one is named, or the promotion takes too long. */
  readonly over: Promise<void>
  end(): void
}

/**
 * ioredis trusts the first Sentinel to answer; this connector asks all and uses the highest config epoch: for a second
 * or two after a failover, some still name the old master. It leaves a master before a replica is promoted, if a
 * Sentinel announces that, otherwise once another one is named; ioredis leaves the new one, too, when the next Sentinel
 * names it.
 */
export class NewestMasterConnector extends Base {
  /** The server that the connection leads to, as the Sentinels name it; undefined while they are asked. */
  #address: string | undefined
  /** The last named master, according to one Sentinel alone. */
  #named: string | undefined
  #leaving: Leaving | undefined
  /** The named server turned out to be a replica. */
  #misled = false
  /** Attempts to connect since a server was reached. */
  #attempts = 0
  readonly #heard = new Map<string, Redis>()

  override connect(emitter: unknown): Promise<Socket> {
    this.#attempts += 1
    const { sentinels } = this.sentinelIterator
    if (this.#attempts > 1 && this.#asksInTurn) sentinels.push(...sentinels.splice(0, 1))
    this.sentinelIterator.reset(false)
    this.#listen()
    return super.connect(emitter)
  }

  override check(info: { role?: string }): boolean {
    this.#misled = !super.check(info)
    return !this.#misled
  }

  override async resolve(sentinel: Endpoint): Promise<Endpoint | null> {
    this.#address = undefined
    if (this.options.role === 'slave') return super.resolve(sentinel)
    for (;;) {
      await this.#leaving?.over
      if (!this.connecting) return null
      const named = this.#named
      const { address } = this.#asksInTurn ? await this.#ask(sentinel) : await this.#newest()
      const key = keyOf(address)
      // Another one was named, or this one is about to be replaced.
      if ((this.#named !== named && this.#named !== key) || this.#leaving?.key === key) continue
      this.#address = key
      return this.sentinelNatResolve(address)
    }
  }

  /** Called by ioredis once the server is reached: by then, further Sentinels are known. */
  initFailoverDetector(): void {
    this.#attempts = 0
    if (this.connecting) this.#listen()
  }

  /**
   * Whether each Sentinel is believed in turn, as by ioredis: the newest answer may be permanently wrong, such as the
   * answer of a forgotten one with an old configuration.
   */
  get #asksInTurn(): boolean {
    return (
      this.options.role === 'slave' || this.#misled || (this.#attempts > TRUSTED_ATTEMPTS && this.#attempts % 2 === 0)
    )
  }

  async #newest(): Promise<SentinelReply> {
    const sentinels = [...this.sentinelIterator.sentinels]
    const most = Math.max(1, this.options.sentinelMaxConnections)
    for (;;) {
      try {
        return await this.#newestOf(sentinels.splice(0, most))
      } catch (error) {
        if (sentinels.length > 0) continue
        // All of them were asked: ioredis need not try the next one.
        while (!this.sentinelIterator.next().done);
        throw error
      }
    }
  }

  async #newestOf(sentinels: readonly Endpoint[]): Promise<SentinelReply> {
    const answers: SentinelReply[] = []
    const asked = sentinels.map((one) => this.#ask(one).then((answer) => answers.push(answer)))
    const all = Promise.allSettled(asked)
    await Promise.any(asked).catch((error: AggregateError) => {
      throw error.errors[0]
    })
    await withinMs(OTHERS_MS, all)
    const isKnown = this.#named === undefined || answers.some(({ address }) => keyOf(address) === this.#named)
    if (!isKnown) await withinMs(this.options.connectTimeout, all)
    return answers.reduce((newest, answer) => (answer.epoch > newest.epoch ? answer : newest))
  }

  async #ask(sentinel: Endpoint): Promise<SentinelReply> {
    const client = this.connectToSentinel(sentinel)
    client.on('error', ignore)
    try {
      const { name } = this.options
      const [fields, address] = await Promise.all([
        // Not every user may ask this.
        client.call('sentinel', 'master', name).catch(() => []) as Promise<string[]>,
        client.call('sentinel', 'get-master-addr-by-name', name) as Promise<[string, string] | null>,
        this.updateSentinels(client),
      ])
      if (!address) throw new Error(`Sentinel ${keyOf(sentinel)} knows no master ${name}`)
      const epoch = Number(fields[fields.indexOf('config-epoch') + 1]) || 0
      return { epoch, address: { host: address[0], port: Number(address[1]) } }
    } finally {
      client.disconnect()
    }
  }

  #listen(): void {
    if (!this.options.failoverDetector) return
    for (const sentinel of this.sentinelIterator.sentinels) {
      if (this.#heard.size >= this.options.sentinelMaxConnections) break
      if (!this.#heard.has(keyOf(sentinel))) this.#listenTo(sentinel)
    }
    this.failoverDetector = { cleanup: () => this.#stopListening() }
  }

  #listenTo(sentinel: Endpoint): void {
    const { sentinelReconnectStrategy: retryStrategy } = this.options
    const client = this.connectToSentinel(sentinel, { lazyConnect: true, retryStrategy })
    const key = keyOf(sentinel)
    this.#heard.set(key, client)
    client.on('error', ignore)
    // The program wants no further attempt: there is one with the next connection.
    client.on('end', () => {
      if (this.#heard.get(key) === client) this.#heard.delete(key)
    })
    // Subscribed separately: ACLs may allow only some of these channels.
    client.on('ready', () => {
      for (const channel of [SWITCHED, PROMOTES, PROMOTED]) client.subscribe(channel).catch(ignore)
    })
    client.on('message', (channel: string, message: string) => this.#learn(channel, message.split(' ')))
    client.connect().catch(ignore)
  }

  #stopListening(): void {
    this.#leaving?.end()
    for (const client of this.#heard.values()) client.disconnect()
    this.#heard.clear()
  }

  #learn(channel: string, words: readonly string[]): void {
    const addressAt = (i: number) => `${words[i]}:${words[i + 1]}`
    if (words[channel === SWITCHED ? 0 : 5] !== this.options.name) return
    if (channel === SWITCHED) this.#goTo(addressAt(3))
    else if (channel === PROMOTED) this.#goTo(addressAt(2))
    else this.#leave(addressAt(6))
  }

  #goTo(key: string): void {
    this.#named = key
    this.#leaving?.end()
    // Waiting commands are resent to the new master; a silent server would not even answer the end of the connection.
    if (this.#address !== undefined && this.#address !== key) this.stream?.destroy()
  }

  #leave(key: string): void {
    this.#leaving?.end()
    const wait = new AbortController()
    const over = sleep(PROMOTION_MS, undefined, { signal: wait.signal })
      .catch(ignore)
      .then(() => {
        if (this.#leaving === leaving) this.#leaving = undefined
      })
    const leaving = { key, over, end: () => wait.abort() }
    this.#leaving = leaving
    if (this.#address === key) this.stream?.destroy()
  }
}
