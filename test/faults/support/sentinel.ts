import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Redis } from 'ioredis'
import { expect } from '../../support/concurrent.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type Link, startLink } from './link.ts'
import { type LinkedRedis, startLinkedRedis } from './linked-redis.ts'
import { adminOf, startOwnRedis } from './own-redis.ts'

const MASTER = 'mymaster'
const SENTINELS = 3
const QUORUM = 2
const REPLICAS = 2
const HOST = '127.0.0.1'
/** Twice the time between two pings: with less, a busy machine is taken for a dead one. */
const DOWN_AFTER_MS = 2000
/** The least: a replica says each second how far it is. A master without any then refuses after at most 3 s. */
const MAX_LAG_S = 1
const TOLD = { timeout: 60_000, interval: 50 }

interface Watcher {
  readonly port: number
  readonly admin: Redis
  /** The way of clients that stay with one server while the network is parted. */
  readonly aside: Link
}

/** A master with two replicas, and the three Sentinels that watch it; all of it ends with the test. */
export class SentinelSetup {
  readonly #servers: readonly LinkedRedis[]
  readonly #sentinels: readonly Watcher[]

  private constructor(servers: readonly LinkedRedis[], sentinels: readonly Watcher[]) {
    this.#servers = servers
    this.#sentinels = sentinels
  }

  /**
   * Its servers refuse writes once they have no replica that was heard of in time.
   * @param downAfterMs after which a master is taken for dead
   */
  static async start(downAfterMs = DOWN_AFTER_MS): Promise<SentinelSetup> {
    const announced = ({ link }: { link: number }) => [
      '--replica-announce-ip',
      HOST,
      '--replica-announce-port',
      `${link}`,
    ]
    const common = [
      '--repl-diskless-sync-delay',
      '0',
      '--min-replicas-to-write',
      '1',
      '--min-replicas-max-lag',
      `${MAX_LAG_S}`,
    ]
    const master = await startLinkedRedis(announced, { args: common })
    const following = [...common, '--replicaof', HOST, String(master.link.port)]
    const replicas = await Promise.all(
      Array.from({ length: REPLICAS }, () => startLinkedRedis(announced, { args: following })),
    )
    for (const { admin } of replicas) await isFollowing(admin)
    const sentinels = await Promise.all(
      Array.from({ length: SENTINELS }, () => startSentinel(master.link.port, downAfterMs)),
    )
    const setup = new SentinelSetup([master, ...replicas], sentinels)
    await setup.#untilKnown()
    return setup
  }

  /** Options of ioredis for a client that reaches all. */
  connection(): object {
    return this.#options(({ port }) => port, {})
  }

  /** The same for one that stays with whichever master is parted from the others. */
  connectionAside(): object {
    const pairs = [
      ...this.#servers.map(({ link, aside }) => [link.port, aside.port]),
      ...this.#sentinels.map(({ port, aside }) => [port, aside.port]),
    ]
    const ways = pairs.map(([port, aside]) => [`${HOST}:${port}`, { host: HOST, port: aside }])
    return this.#options(({ aside }) => aside.port, { natMap: Object.fromEntries(ways) })
  }

  #options(portOf: (watcher: Watcher) => number, ways: object): object {
    const sentinels = this.#sentinels.map((watcher) => ({ host: HOST, port: portOf(watcher) }))
    return { sentinels, name: MASTER, failoverDetector: true, maxRetriesPerRequest: null, ...ways }
  }

  /** The master that the Sentinels name. */
  async master(): Promise<LinkedRedis> {
    const { admin } = this.#sentinels[0] as Watcher
    const [, port] = (await admin.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER)) as string[]
    return this.#servers.find(({ link }) => link.port === Number(port)) as LinkedRedis
  }

  /** Resolves once one of the Sentinels names another master. */
  async named(master: LinkedRedis): Promise<void> {
    const names = async ({ admin }: Watcher) => {
      const [, port] = (await admin.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER)) as string[]
      return Number(port) !== master.link.port
    }
    const isNamed = async () => (await Promise.all(this.#sentinels.map(names))).some(Boolean)
    await expect.poll(isNamed, { ...TOLD, interval: 20 }).toBe(true)
  }

  /** Kills the master, and resolves once another one is named. */
  async kill(): Promise<LinkedRedis> {
    const master = await this.master()
    await master.service.kill()
    await this.#untilReplaced(master)
    return master
  }

  /** Starts it again, as a replica of the new master. */
  async restart(server: LinkedRedis): Promise<void> {
    await server.service.restart()
    await isFollowing(server.admin)
  }

  /** Another server takes over though the master lives, which goes on for some seconds until it is told. */
  async failOver(): Promise<void> {
    const master = await this.master()
    const { admin } = this.#sentinels[0] as Watcher
    await expect.poll(() => admin.call('SENTINEL', 'FAILOVER', MASTER).catch(String), TOLD).toBe('OK')
    await this.#untilReplaced(master)
    await isFollowing(master.admin)
  }

  /** Parts the master and the clients beside it from all others, until another one is named. */
  async part(): Promise<LinkedRedis> {
    const master = await this.master()
    master.link.silence()
    for (const server of this.#servers) if (server !== master) server.aside.silence()
    for (const { aside } of this.#sentinels) aside.silence()
    await this.#untilReplaced(master)
    return master
  }

  /** Joins them again, and resolves once the old master follows the new one. */
  async join(master: LinkedRedis): Promise<void> {
    for (const { link, aside } of this.#servers) for (const one of [link, aside]) one.heal()
    for (const { aside } of this.#sentinels) aside.heal()
    await isFollowing(master.admin)
  }

  /** Connections to the Sentinels, but for those of the Sentinels and of this setup. */
  async clientsOfSentinels(): Promise<number> {
    const lists = await Promise.all(this.#sentinels.map(({ admin }) => admin.client('LIST') as Promise<string>))
    const lines = lists.flatMap((list) => list.trim().split('\n'))
    return lines.filter((line) => / cmd=subscribe /.test(line) && !/ name=sentinel-/.test(line)).length
  }

  async #untilReplaced(master: LinkedRedis): Promise<void> {
    const isReplaced = async () => {
      const now = await this.master()
      return now !== master && (await now.admin.info('replication')).includes('role:master')
    }
    await expect.poll(isReplaced, TOLD).toBe(true)
  }

  /** A Sentinel can only help with a failover once it knows the replicas and the other Sentinels. */
  async #untilKnown(): Promise<void> {
    for (const { admin } of this.#sentinels) {
      const known = async () => (await admin.info('sentinel')).trim().split('\n').at(-1)
      await expect.poll(known, TOLD).toContain(`slaves=${REPLICAS},sentinels=${SENTINELS}`)
    }
  }
}

async function startSentinel(masterPort: number, downAfterMs: number): Promise<Watcher> {
  const configFile = join(temporaryFolder(), 'sentinel.conf')
  const settings = [
    `monitor ${MASTER} ${HOST} ${masterPort} ${QUORUM}`,
    `down-after-milliseconds ${MASTER} ${downAfterMs}`,
    `failover-timeout ${MASTER} 10000`,
  ]
  writeFileSync(configFile, settings.map((line) => `sentinel ${line}\n`).join(''))
  const { port, url } = await startOwnRedis({ configFile, args: ['--sentinel'] })
  return { port, admin: adminOf(url), aside: await startLink(port) }
}

async function isFollowing(server: Redis): Promise<void> {
  await expect.poll(() => server.info('replication'), TOLD).toContain('master_link_status:up')
}
