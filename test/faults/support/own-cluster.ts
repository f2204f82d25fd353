import { createHash } from 'node:crypto'
import { Cluster, type ClusterOptions, type Redis } from 'ioredis'
import type { RedisService } from '../../../workers/services/redis.ts'
import { CLUSTER_ARGS, formCluster } from '../../support/cluster.ts'
import { expect, onTestFinished } from '../../support/concurrent.ts'
import { type RedisProxy, startProxy } from '../../support/proxy.ts'
import { adminOf, startOwnRedis } from './own-redis.ts'

/** A connection to three masters of its own; all of it ends with the test. */
export async function startOwnCluster(): Promise<Cluster> {
  const cluster = await OwnCluster.start()
  return cluster.connect()
}

interface Address {
  readonly host: string
  readonly port: number
}

/** A slot, the node that it is on, and another one. */
interface Place {
  readonly slot: number
  readonly from: number
  readonly to: number
}

/** Three masters of one test, whose slots can be moved. */
export class OwnCluster {
  readonly #nodes: readonly RedisService[]
  readonly #admins: Redis[]

  private constructor(nodes: readonly RedisService[]) {
    this.#nodes = nodes
    this.#admins = nodes.map(({ url }) => adminOf(url))
  }

  static async start(): Promise<OwnCluster> {
    const nodes = await Promise.all([1, 2, 3].map(() => startOwnRedis({ args: CLUSTER_ARGS })))
    await formCluster(nodes)
    return new OwnCluster(nodes)
  }

  /** That of a node. */
  get url(): string {
    return (this.#nodes[0] as RedisService).url
  }

  connect(options: Omit<ClusterOptions, 'redisOptions'> = {}, at: readonly Address[] = this.#nodes): Cluster {
    const connection = new Cluster(
      at.map(({ host, port }) => ({ host, port })),
      { ...options, redisOptions: { maxRetriesPerRequest: null } },
    )
    connection.on('error', () => {})
    onTestFinished(() => connection.disconnect())
    return connection
  }

  /** A connection to proxies, one before each node. */
  async connectThroughProxies(): Promise<{ connection: Cluster; proxies: readonly RedisProxy[] }> {
    const proxies = await Promise.all(this.#nodes.map(({ url }) => startProxy(url)))
    for (const proxy of proxies) onTestFinished(() => proxy.stop())
    const natMap = Object.fromEntries(
      this.#nodes.map(({ host, port }, i) => [`${host}:${port}`, addressOf(proxies[i] as RedisProxy)]),
    )
    return { connection: this.connect({ natMap }, proxies), proxies }
  }

  /** Kills a node, and waits until another one says that the cluster is down, which wants all its slots. */
  async goDown(killed: number, other: number): Promise<void> {
    await this.#nodes[killed]?.kill()
    await this.#untilState(other, 'fail')
  }

  /** Ends that. */
  async comeUp(killed: number, other: number): Promise<void> {
    await this.#nodes[killed]?.restart()
    await this.#untilState(other, 'ok')
  }

  /** A node answers no client for a time; the other nodes do not mind. */
  async standStill(node: number, forMs: number): Promise<void> {
    await this.#admins[node]?.call('CLIENT', 'PAUSE', forMs, 'ALL')
  }

  /** The slot of a key, the node that it is on after the cluster was formed, and the one after that. */
  async placeOf(key: string): Promise<Place> {
    const slot = (await this.#admins[0]?.call('CLUSTER', 'KEYSLOT', key)) as number
    const from = [0, 1, 2].findLastIndex((i) => Math.floor((i * 16_384) / 3) <= slot)
    return { slot, from, to: (from + 1) % 3 }
  }

  /** Begins to move a slot, to a node that has run for a while: its keys stay for now. */
  async beginMove({ slot, from, to }: Place): Promise<void> {
    const uptimeS = async () =>
      Number(/uptime_in_seconds:(\d+)/.exec((await this.#admins[to]?.info('server')) ?? '')?.[1])
    await expect.poll(uptimeS, { interval: 100 }).toBeGreaterThan(3)
    const ids = await this.#ids()
    await this.#admins[to]?.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', ids[from] as string)
    await this.#admins[from]?.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', ids[to] as string)
  }

  /** Moves some keys of the slot, or all that are left; what a redirected script wrote meanwhile gives way to them. */
  async moveKeys({ slot, from, to }: Place, some?: string[]): Promise<void> {
    const { host, port } = this.#nodes[to] as RedisService
    for (;;) {
      const keys = some ?? ((await this.#admins[from]?.call('CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[])
      if (keys.length > 0)
        await this.#admins[from]?.call('MIGRATE', host, port, '', 0, 5000, 'REPLACE', 'KEYS', ...keys)
      if (some || keys.length === 0) return
    }
  }

  /** Moves what is left, unless a key is at both nodes. */
  async moveRest({ slot, from, to }: Place): Promise<void> {
    const { host, port } = this.#nodes[to] as RedisService
    const keys = await this.keysAt(slot, from)
    await this.#admins[from]?.call('MIGRATE', host, port, '', 0, 5000, 'KEYS', ...keys)
  }

  async keysAt(slot: number, node: number): Promise<string[]> {
    return (await this.#admins[node]?.call('CLUSTER', 'GETKEYSINSLOT', slot, 10_000)) as string[]
  }

  /** Each key of a slot that moves, with the node that it is at and its value. */
  async contents({ slot, from, to }: Place): Promise<string[]> {
    const found: string[] = []
    for (const node of [from, to]) {
      for (const key of await this.keysAt(slot, node)) {
        await this.#admins[node]?.call('ASKING')
        const dump = (await this.#admins[node]?.dumpBuffer(key)) as Buffer
        found.push(`${node} ${key} ${createHash('sha1').update(dump).digest('hex')}`)
      }
    }
    return found.toSorted()
  }

  /** How often the nodes refused a call whose keys are not all at one of them. */
  async refusals(): Promise<number> {
    const infos = await Promise.all(this.#admins.map((admin) => admin.info('errorstats')))
    return infos.reduce((sum, info) => sum + Number(/errorstat_TRYAGAIN:count=(\d+)/.exec(info)?.[1] ?? 0), 0)
  }

  async endMove({ slot, from, to }: Place): Promise<void> {
    const id = (await this.#ids())[to] as string
    for (const i of [to, from, 3 - to - from]) await this.#admins[i]?.call('CLUSTER', 'SETSLOT', slot, 'NODE', id)
  }

  /** Another node takes over from a master, as after its death: it has what was replicated. */
  async failOver(master: number): Promise<void> {
    const replica = await startOwnRedis({ args: CLUSTER_ARGS })
    const admin = adminOf(replica.url)
    const id = (await this.#ids())[master] as string
    const { host, port } = this.#nodes[master] as RedisService
    await admin.call('CLUSTER', 'MEET', host, port)
    const told = { timeout: 60_000, interval: 50 }
    await expect.poll(() => admin.call('CLUSTER', 'NODES'), told).toContain(id)
    await expect.poll(() => admin.call('CLUSTER', 'REPLICATE', id).catch(String), told).toBe('OK')
    await expect.poll(() => admin.info('replication'), told).toContain('master_link_status:up')
    // Else another node would not believe it.
    const epochs = await Promise.all(this.#admins.map(epochOf))
    await expect.poll(() => epochOf(admin), told).toBeGreaterThanOrEqual(Math.max(...epochs))
    await admin.call('CLUSTER', 'FAILOVER', 'TAKEOVER')
    // Until it knows, it would take what nobody will find again.
    await expect.poll(() => this.#admins[master]?.info('replication'), told).toContain('role:slave')
    for (const one of [admin, ...this.#admins]) {
      await expect.poll(() => one.call('CLUSTER', 'INFO'), told).toContain('cluster_state:ok')
    }
  }

  async #untilState(node: number, state: 'ok' | 'fail'): Promise<void> {
    const info = () => this.#admins[node]?.call('CLUSTER', 'INFO')
    await expect.poll(info, { timeout: 60_000, interval: 50 }).toContain(`cluster_state:${state}`)
  }

  #ids(): Promise<string[]> {
    return Promise.all(this.#admins.map((admin) => admin.call('CLUSTER', 'MYID') as Promise<string>))
  }
}

function addressOf({ host, port }: Address): Address {
  return { host, port }
}

async function epochOf(admin: Redis): Promise<number> {
  return Number(/cluster_current_epoch:(\d+)/.exec((await admin.call('CLUSTER', 'INFO')) as string)?.[1])
}
