import { EventEmitter } from 'node:events'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { InvalidShapeError } from '../../src/errors.ts'
import type { Client } from '../../src/redis/commands.ts'
import { LOOK_MS, SilenceWatch, watchConnection } from '../../src/redis/connection-watch.ts'
import { encodeDurability } from '../../src/shape/durability.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
})
afterEach(() => {
  vi.useRealTimers()
})

/** A node whose server answers, or does not. */
class FakeNode {
  status = 'ready'
  answers = true
  /** What PING is refused with. */
  refusal = ''
  pings = 0
  replaced = 0
  readonly stream = { bytesRead: 0, destroy: () => this.#replace() }

  #replace(): void {
    this.replaced += 1
  }

  /** As ioredis has it: what is not answered. */
  commandQueue = { peekFront: () => this.#first }
  #first: { command: { name: string; args: readonly unknown[] } } | undefined

  waitForReplicas(): void {
    this.leave('wait')
  }

  /** A command is not answered. */
  leave(name: string, ...args: readonly unknown[]): void {
    this.#first = { command: { name, args } }
  }

  ping(): Promise<void> {
    this.pings += 1
    if (!this.answers) return new Promise(() => {})
    this.stream.bytesRead += 7
    return this.refusal ? Promise.reject(new Error(this.refusal)) : Promise.resolve()
  }
}

async function look(times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    vi.advanceTimersByTime(LOOK_MS)
    await new Promise((resolve) => setImmediate(resolve))
  }
}

function watched(...nodes: FakeNode[]): { stop: () => void } {
  const cluster = { isCluster: true, nodes: () => nodes }
  return { stop: watchConnection((nodes.length > 1 ? cluster : nodes[0]) as unknown as Client, true) }
}

test('a connection that answers is kept, one that does not is replaced within 5 s, again and again', async () => {
  const node = new FakeNode()
  const { stop } = watched(node)
  await look(20)
  expect(node).toMatchObject({ pings: 7, replaced: 0 })
  node.answers = false
  await look(5000 / LOOK_MS)
  expect(node.replaced).toBe(1)
  await look(5000 / LOOK_MS)
  expect(node.replaced).toBe(2)
  stop()
})

test('each user of a client is told once that Redis has loaded its data, when it serves again', async () => {
  const node = new FakeNode()
  const told: string[] = []
  const stops = ['a', 'b'].map((user) =>
    watchConnection(node as unknown as Client, true, { loaded: () => told.push(user) }),
  )
  node.refusal = 'BUSY Redis is busy running a script'
  await look(6)
  node.refusal = ''
  await look(6)
  expect(told).toEqual([])
  node.refusal = 'LOADING Redis is loading the dataset in memory'
  await look(6)
  expect(told).toEqual([])
  node.refusal = ''
  await look(9)
  expect(told).toEqual(['a', 'b'])
  expect(node.replaced).toBe(0)
  for (const stop of stops) stop()
})

test.each([
  ['a megabyte', 1024 * 1024, 7 + 16],
  ['ten megabytes', 10 * 1024 * 1024, 25],
])('a command of %s has more time to be sent', async (_what, bytes, looks) => {
  const node = new FakeNode()
  const { stop } = watched(node)
  await look(2)
  node.answers = false
  node.leave('evalsha', 'key', Buffer.alloc(bytes))
  await look(looks - 1)
  expect(node.replaced).toBe(0)
  await look(1)
  expect(node.replaced).toBe(1)
  stop()
})

test('a command without an answer shows it sooner than the next PING', async () => {
  const node = new FakeNode()
  const { stop } = watched(node)
  await look(2)
  node.answers = false
  node.leave('evalsha')
  await look(3500 / LOOK_MS)
  expect(node.replaced).toBe(1)
  stop()
})

test('where commands block, one without an answer shows nothing; what does not block is answered in time', async () => {
  const node = new FakeNode()
  node.leave('bzpopmin')
  const stop = watchConnection(node as unknown as Client, false)
  await look(50)
  expect(node).toMatchObject({ pings: 0, replaced: 0 })
  // The question before it blocks, or the command that closes it.
  node.leave('info')
  await look(3500 / LOOK_MS)
  expect(node).toMatchObject({ pings: 0, replaced: 1 })
  stop()
})

test('an answer that takes 3 s is soon enough', async () => {
  const node = new FakeNode()
  const { stop } = watched(node)
  node.answers = false
  for (let i = 0; i < 5; i++) {
    await look(3000 / LOOK_MS)
    node.stream.bytesRead += 7
  }
  expect(node.replaced).toBe(0)
  stop()
})

test('what was not read by a busy or suspended program is no silence', () => {
  const now = vi.spyOn(performance, 'now')
  onTestFinished(() => now.mockRestore())
  let replaced = 0
  const watch = new SilenceWatch({
    state: () => 'live',
    received: () => 0,
    ask: () => new Promise(() => {}),
    replace: () => {
      replaced += 1
    },
  })
  let nowMs = 0
  const lookAfter = (ms: number) => {
    nowMs += ms
    now.mockReturnValue(nowMs)
    watch.look()
  }
  for (let i = 0; i < 50; i++) lookAfter(3 * LOOK_MS)
  expect(replaced).toBe(0)
  for (let i = 0; i < 7; i++) lookAfter(LOOK_MS)
  expect(replaced).toBe(1)
})

test('a long answer on its way is a sign of life', async () => {
  const node = new FakeNode()
  const { stop } = watched(node)
  node.answers = false
  for (let i = 0; i < 20; i++) {
    node.stream.bytesRead += 1
    await look(1)
  }
  expect(node.replaced).toBe(0)
  stop()
})

test('a connection without a socket is left to whoever opens the next, one that is being opened has longer', async () => {
  const node = new FakeNode()
  const { stop } = watched(node)
  node.status = 'reconnecting'
  await look(20)
  expect(node).toMatchObject({ pings: 0, replaced: 0 })
  node.status = 'connect'
  await look(12_000 / LOOK_MS)
  expect(node.replaced).toBe(0)
  await look(1)
  expect(node.replaced).toBe(1)
  stop()
})

test('each node of a cluster is watched by itself', async () => {
  const nodes = [new FakeNode(), new FakeNode()] as const
  const { stop } = watched(...nodes)
  nodes[1].answers = false
  await look(5000 / LOOK_MS)
  expect(nodes.map(({ replaced }) => replaced)).toEqual([0, 1])
  stop()
})

/** A cluster whose nodes are asked who has the slots. */
function clusterOf(...names: string[]) {
  const nodes = names.map((host) => Object.assign(new FakeNode(), { options: { host, port: 1 } }))
  const asked: { readonly host: string; readonly answer: () => void }[] = []
  const getInfoFromNode = ({ options }: (typeof nodes)[number], answer: () => void) =>
    void asked.push({ host: options.host, answer })
  return { isCluster: true, status: 'ready', nodes: () => nodes, getInfoFromNode, asked, all: nodes }
}

test('while a node of a cluster says nothing, the others are asked who has its slots', async () => {
  const cluster = clusterOf('silent', 'answering')
  const [silent] = cluster.all
  const stop = watchConnection(cluster as unknown as Client, true)
  await look(2)
  Object.assign(silent!, { answers: false }).leave('evalsha')
  await look(1)
  expect(cluster.asked).toHaveLength(0)
  await look(2)
  expect(cluster.asked).toHaveLength(1)
  cluster.asked[0]?.answer()
  expect(silent?.replaced).toBe(0)
  await look(1)
  expect(cluster.asked.map(({ host }) => host)).toEqual(['answering', 'answering'])
  cluster.all.shift()
  cluster.asked[1]?.answer()
  expect(silent?.replaced).toBe(1)
  stop()
})

test('while a node of a cluster cannot be reached, the others are asked', async () => {
  const cluster = clusterOf('gone', 'answering')
  Object.assign(cluster.all[0]!, { status: 'connecting' })
  const stop = watchConnection(cluster as unknown as Client, true)
  for (let i = 0; i < 40; i++) {
    await look(1)
    cluster.asked.at(-1)?.answer()
  }
  expect(cluster.asked.length).toBeGreaterThan(30)
  expect(cluster.all[0]?.replaced).toBe(0)
  stop()
})

test('a blocking connection leaves the node of a cluster that the other connection has left', async () => {
  const [plain, blocking] = [clusterOf('a', 'b'), clusterOf('a', 'b')]
  const stop = watchConnection(blocking as unknown as Client, false, { other: plain as unknown as Client })
  await look(20)
  expect(blocking.asked).toHaveLength(0)
  const [left] = blocking.all
  plain.all.shift()
  await look(1)
  blocking.all.shift()
  blocking.asked[0]?.answer()
  await look(20)
  expect(blocking.asked.map(({ host }) => host)).toEqual(['b'])
  expect(left?.replaced).toBe(1)
  stop()
})

test('a blocking connection asks nothing over a node that it never used, and that the other one does not know yet', async () => {
  const [plain, blocking] = [clusterOf('a'), clusterOf('a', 'replica')]
  Object.assign(blocking.all[1]!, { status: 'wait' })
  const stop = watchConnection(blocking as unknown as Client, false, { other: plain as unknown as Client })
  await look(5)
  expect(blocking.asked).toHaveLength(0)
  stop()
})

test('a client that ioredis gave up is connected again, one that the program has closed is not', async () => {
  const connect = vi.fn(async () => {})
  const client = Object.assign(new EventEmitter(), { status: 'end', options: { failoverDetector: true }, connect })
  const stop = watchConnection(client as unknown as Client, true)
  client.emit('close')
  await look(2)
  expect(connect).not.toHaveBeenCalled()
  client.emit('connecting')
  await look(1)
  expect(connect).toHaveBeenCalledTimes(1)
  stop()
  expect(client.eventNames()).toEqual([])
})

test('a client that is shared is watched once, until its last user stops', async () => {
  const node = new FakeNode()
  const [one, other] = [watched(node), watched(node)]
  one.stop()
  one.stop()
  await look(9)
  expect(node.pings).toBe(3)
  other.stop()
  await look(9)
  expect(node.pings).toBe(3)
})

test('one on which Redis waits for replicas has longer', async () => {
  const node = new FakeNode()
  const { stop } = watched(node)
  node.answers = false
  node.waitForReplicas()
  await look(7000 / LOOK_MS)
  expect(node.replaced).toBe(0)
  await look(1)
  expect(node.replaced).toBe(1)
  stop()
})

test('a connection on which replicas are waited for is not taken for silent', () => {
  let replaced = false
  const watch = new SilenceWatch({
    state: () => 'live',
    waits: () => true,
    received: () => 0,
    ask: () => new Promise(() => {}),
    replace: () => {
      replaced = true
    },
  })
  watch.look()
  let looks = 0
  for (; !replaced; looks++) watch.look()
  const longest = (timeoutMs: number) => encodeDurability({ replicas: 1, timeoutMs })
  expect((looks - 1) * LOOK_MS).toBeGreaterThan(5000 + 1000)
  expect(longest(5000)).toBe('1 5000')
  expect(() => longest(5001)).toThrow(InvalidShapeError)
})
