import { Cluster, type ClusterOptions } from 'ioredis'
import { CLUSTER_ARGS, formCluster } from '../../support/cluster.ts'
import { expect, onTestFinished } from '../../support/concurrent.ts'
import { type LinkedRedis, startLinkedRedis } from './linked-redis.ts'

const MASTERS = 3
const SLOTS = 16_384
const TOLD = { timeout: 60_000, interval: 50 }
/** In a message of the bus, the id of its sender follows 40 bytes of numbers. */
const SENDER = { from: 40, to: 80 }

/** What a node says of one of the cluster. */
interface Member {
  readonly id: string
  readonly masterId: string
  readonly isMaster: boolean
  readonly slots: readonly (readonly [from: number, to: number])[]
}

/** Three masters, each with a replica, which take over from each other; all of it ends with the test. */
export class ReplicatedCluster {
  readonly #nodes: readonly LinkedRedis[]
  readonly #ids: readonly string[]
  readonly #dead = new Set<LinkedRedis>()

  private constructor(nodes: readonly LinkedRedis[], ids: readonly string[]) {
    this.#nodes = nodes
    this.#ids = ids
  }

  /**
   * @param nodeTimeoutMs after which a master is taken for dead, and after which one without the others refuses
   * @param fullCoverage whether all masters refuse while one of them is gone: Redis's default
   */
  static async start({
    nodeTimeoutMs = 1000,
    persistence = 'none' as 'none' | 'aof',
    fullCoverage = true,
  } = {}): Promise<ReplicatedCluster> {
    const argsOf = ({ link, bus, ownBus }: { link: number; bus: number; ownBus: number }) => [
      ...[...CLUSTER_ARGS, '--cluster-node-timeout', `${nodeTimeoutMs}`, '--cluster-port', `${ownBus}`],
      ...['--cluster-announce-port', `${link}`, '--cluster-announce-bus-port', `${bus}`],
      ...['--cluster-replica-validity-factor', '0', '--cluster-require-full-coverage', fullCoverage ? 'yes' : 'no'],
    ]
    const nodes = await Promise.all(
      Array.from({ length: 2 * MASTERS }, () => startLinkedRedis(argsOf, { persistence })),
    )
    const [masters, replicas] = [nodes.slice(0, MASTERS), nodes.slice(MASTERS)]
    await formCluster(
      masters.map(({ service: { url, host }, link, bus }) => ({ url, host, port: link.port, busPort: bus.port })),
    )
    const ids = await Promise.all(nodes.map(({ admin }) => admin.call('CLUSTER', 'MYID') as Promise<string>))
    const cluster = new ReplicatedCluster(nodes, ids)
    await Promise.all(replicas.map((replica, i) => cluster.#join(replica, i)))
    await cluster.#untilAgreed()
    return cluster
  }

  async #join({ admin }: LinkedRedis, master: number): Promise<void> {
    const { link, bus } = this.#nodes[master] as LinkedRedis
    await admin.call('CLUSTER', 'MEET', '127.0.0.1', link.port, bus.port)
    await expect
      .poll(() => admin.call('CLUSTER', 'REPLICATE', this.#ids[master] as string).catch(String), TOLD)
      .toBe('OK')
    await expect.poll(() => admin.info('replication'), TOLD).toContain('master_link_status:up')
  }

  /** A connection that reaches the nodes as they reach each other. */
  connect(options: Pick<ClusterOptions, 'scaleReads'> = {}): Cluster {
    const ports = this.#nodes.map(({ link }) => link.port)
    return this.#open(ports, options)
  }

  /** A connection that stays with whichever master is parted from the others. */
  connectAside(): Cluster {
    const natMap = Object.fromEntries(
      this.#nodes.map(({ link, aside }) => [`127.0.0.1:${link.port}`, { host: '127.0.0.1', port: aside.port }]),
    )
    return this.#open(
      this.#nodes.map(({ aside }) => aside.port),
      { natMap },
    )
  }

  #open(ports: readonly number[], options: Pick<ClusterOptions, 'scaleReads' | 'natMap'>): Cluster {
    const connection = new Cluster(
      ports.map((port) => ({ host: '127.0.0.1', port })),
      { ...options, redisOptions: { maxRetriesPerRequest: null } },
    )
    connection.on('error', () => {})
    onTestFinished(() => connection.disconnect())
    return connection
  }

  /** Until every node names a replica for every slot: only then does a client know where to read. */
  async untilReplicasServe(): Promise<void> {
    const areNamed = async ({ admin }: LinkedRedis) => {
      const ranges = (await admin.call('CLUSTER', 'SLOTS')) as unknown[][]
      return ranges.every((range) => range.length > 3)
    }
    await expect.poll(async () => (await Promise.all(this.#nodes.map(areNamed))).every(Boolean), TOLD).toBe(true)
  }

  async masterOf(key: string): Promise<LinkedRedis> {
    const slot = (await this.#anyone().admin.call('CLUSTER', 'KEYSLOT', key)) as number
    const members = await this.#members(this.#anyone())
    const owner = members.find(({ slots }) => slots.some(([from, to]) => from <= slot && slot <= to))
    return this.#nodeOf(owner?.id as string)
  }

  async replicaOf(master: LinkedRedis): Promise<LinkedRedis> {
    const members = await this.#members(master)
    const { id } = members.find(({ masterId }) => masterId === this.#idOf(master)) as Member
    return this.#nodeOf(id)
  }

  /** A master that does not hold the key. */
  async anotherMaster(key: string): Promise<LinkedRedis> {
    const owner = await this.masterOf(key)
    const members = await this.#members(owner)
    const other = members.find(({ id, slots }) => slots.length > 0 && id !== this.#idOf(owner)) as Member
    return this.#nodeOf(other.id)
  }

  /** Kills a master, and resolves once its replica has taken over. */
  async kill(master: LinkedRedis, key: string): Promise<void> {
    await master.service.kill()
    this.#dead.add(master)
    await this.#untilReplaced(master, key)
  }

  /** Resolves once another node says that a key is not this master's any more. */
  async named(master: LinkedRedis, key: string): Promise<void> {
    const others = this.#nodes.filter((node) => node !== master && !this.#dead.has(node))
    const slot = (await others[0]?.admin.call('CLUSTER', 'KEYSLOT', key)) as number
    const names = async (node: LinkedRedis) => {
      const members = await this.#members(node).catch(() => [])
      const owner = members.find(({ slots }) => slots.some(([from, to]) => from <= slot && slot <= to))
      return owner !== undefined && owner.id !== this.#idOf(master)
    }
    const isNamed = async () => (await Promise.all(others.map(names))).some(Boolean)
    await expect.poll(isNamed, { ...TOLD, interval: 20 }).toBe(true)
  }

  async restart(node: LinkedRedis): Promise<void> {
    await node.service.restart()
    this.#dead.delete(node)
    await this.#untilAgreed()
    await expect.poll(() => node.admin.info('replication'), TOLD).toContain('master_link_status:up')
  }

  /** The replica of a master takes over, by agreement of both: nothing is lost. */
  async failOver(master: LinkedRedis): Promise<void> {
    const replica = await this.replicaOf(master)
    await replica.admin.call('CLUSTER', 'FAILOVER')
    await expect.poll(() => replica.admin.info('replication'), TOLD).toContain('role:master')
    await expect.poll(() => master.admin.info('replication'), TOLD).toContain('master_link_status:up')
    await this.#untilAgreed()
  }

  /**
   * Parts a master and the clients beside it from all others. Resolves once its replica has taken over on the other
   * side of the gap.
   */
  async part(master: LinkedRedis, key: string): Promise<void> {
    const id = this.#idOf(master)
    master.link.silence()
    master.bus.silence()
    for (const other of this.#nodes) {
      if (other === master) continue
      other.aside.silence()
      other.bus.silence((first) => first.subarray(SENDER.from, SENDER.to).toString('latin1') === id)
    }
    this.#dead.add(master)
    await this.#untilReplaced(master, key)
  }

  /** Joins them again, and resolves once the old master follows the new one. */
  async join(master: LinkedRedis): Promise<void> {
    for (const { link, bus, aside } of this.#nodes) for (const one of [link, bus, aside]) one.heal()
    this.#dead.delete(master)
    await expect.poll(() => master.admin.info('replication'), TOLD).toContain('master_link_status:up')
    await this.#untilAgreed()
  }

  /** Moves the slot of a key to another master, key by key, as `redis-cli --cluster reshard` does. */
  async moveSlot(key: string, to: LinkedRedis): Promise<void> {
    const from = await this.masterOf(key)
    const slot = (await from.admin.call('CLUSTER', 'KEYSLOT', key)) as number
    await to.admin.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', this.#idOf(from))
    await from.admin.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', this.#idOf(to))
    const { host, port } = to.service
    for (;;) {
      const keys = (await from.admin.call('CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[]
      if (keys.length === 0) break
      await from.admin.call('MIGRATE', host, port, '', 0, 5000, 'REPLACE', 'KEYS', ...keys)
    }
    const members = await this.#members(to)
    const masters = members.filter(({ isMaster }) => isMaster).map(({ id }) => this.#nodeOf(id))
    for (const node of [to, from, ...masters.filter((one) => one !== to && one !== from)]) {
      await node.admin.call('CLUSTER', 'SETSLOT', slot, 'NODE', this.#idOf(to))
    }
  }

  #anyone(): LinkedRedis {
    return this.#nodes.find((node) => !this.#dead.has(node)) as LinkedRedis
  }

  #idOf(node: LinkedRedis): string {
    return this.#ids[this.#nodes.indexOf(node)] as string
  }

  #nodeOf(id: string): LinkedRedis {
    return this.#nodes[this.#ids.indexOf(id)] as LinkedRedis
  }

  async #members({ admin }: LinkedRedis): Promise<Member[]> {
    const lines = ((await admin.call('CLUSTER', 'NODES')) as string).trim().split('\n')
    return lines.map((line) => {
      const [id = '', , flags = '', masterId = '', , , , , ...slots] = line.split(' ')
      return {
        id,
        masterId,
        isMaster: flags.includes('master'),
        slots: slots.filter((range) => !range.startsWith('[')).map(rangeOf),
      }
    })
  }

  async #untilReplaced(master: LinkedRedis, key: string): Promise<void> {
    await expect.poll(() => this.masterOf(key).then((owner) => owner !== master), TOLD).toBe(true)
    await this.#untilAgreed()
  }

  /** A cluster sends no event when its nodes agree, so it is polled. */
  async #untilAgreed(): Promise<void> {
    const living = this.#nodes.filter((node) => !this.#dead.has(node))
    const areOk = async () => {
      const infos = await Promise.all(living.map(({ admin }) => admin.call('CLUSTER', 'INFO') as Promise<string>))
      const members = await Promise.all(living.map((node) => this.#members(node)))
      const slots = members.map((all) => all.reduce((sum, one) => sum + slotsOf(one), 0))
      return (
        infos.every((info) => info.includes('cluster_state:ok')) &&
        slots.every((count) => count === SLOTS) &&
        members.every((all) => living.every((node) => hasPart(all.find(({ id }) => id === this.#idOf(node)))))
      )
    }
    await expect.poll(areOk, TOLD).toBe(true)
  }
}

function rangeOf(text: string): readonly [number, number] {
  const [from = '', to = from] = text.split('-')
  return [Number(from), Number(to)]
}

/** Whether a node is known as a master of slots, or as the replica of one. */
function hasPart(member: Member | undefined): boolean {
  return member !== undefined && (member.isMaster ? member.slots.length > 0 : member.masterId !== '-')
}

function slotsOf({ slots }: Member): number {
  return slots.reduce((sum, [from, to]) => sum + to - from + 1, 0)
}
