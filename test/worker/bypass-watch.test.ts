import { beforeEach, describe, expect, test, vi } from 'vitest'
import { BypassWatch } from '../../src/worker/bypass-watch.ts'

/** What the watch sees of a worker whose waiting client is ready. */
function watchOf(client: object): BypassWatch {
  const waitingClient = { status: 'ready', on: () => {}, ...client }
  const backend = { client: Promise.resolve(waitingClient), waitingClient }
  return new BypassWatch({ name: 'q', toKey: (type: string) => type, emit: () => true, opts: {}, backend } as never)
}

test('the id of the waiting connection is learned', async () => {
  const watch = watchOf({ clientInfo: async () => 'id=42 addr=127.0.0.1:1 name=x' })
  await new Promise((resolve) => setImmediate(resolve))
  expect(watch.clientId).toBe(42)
})

test('after a new connection it is learned anew, and unknown until then', async () => {
  const ids = ['id=42', 'id=43']
  let ready = () => {}
  const on = (_event: string, listener: () => void) => {
    ready = listener
  }
  const watch = watchOf({ status: 'connecting', on, clientInfo: async () => ids.shift() })
  for (const id of [42, 43]) {
    ready()
    expect(watch.clientId).toBeUndefined()
    await new Promise((resolve) => setImmediate(resolve))
    expect(watch.clientId).toBe(id)
  }
})

// A rejection that no one handles would fail the run.
test.each([
  ['may not ask', { clientInfo: () => Promise.reject(new Error('NOPERM')) }],
  ['cannot ask', {}],
])('with a client that %s it stays unknown', async (_, client) => {
  const watch = watchOf(client)
  await new Promise((resolve) => setImmediate(resolve))
  expect(watch.clientId).toBeUndefined()
})

describe('a job that was started past the meter', () => {
  const of = Buffer.from('q').toString('base64')
  const CLIENTS = `id=7 addr=10.0.0.7:1 name=bull:${of}:w:plain age=60\nid=8 addr=10.0.0.8:1 name=bull:${of} age=60\n`

  /** A watch of a queue with its own warning, by a clock that stands still. */
  function bypassed(base: string, list: () => Promise<string>, reported: Readonly<Record<string, string>> = {}) {
    vi.useFakeTimers({ toFake: ['performance'] })
    vi.advanceTimersByTime(1000)
    const asked = { times: 0 }
    const client = {
      hgetall: async () => reported,
      clientList: () => {
        asked.times += 1
        return list()
      },
    }
    const warnings: string[] = []
    vi.spyOn(process, 'emitWarning').mockImplementation((text) => void warnings.push(String(text)))
    const emit = vi.fn()
    const watch = new BypassWatch({
      ...{ name: 'q', toKey: (type: string) => `${base}:${type}`, emit, opts: {} },
      backend: { client: Promise.resolve(client), waitingClient: undefined },
    } as never)
    const found = async (jobId: string) => {
      watch.found(jobId)
      await new Promise((resolve) => setImmediate(resolve))
    }
    return { watch, found, asked, warnings, emit }
  }

  beforeEach(() => () => {
    vi.useRealTimers()
    vi.restoreAllMocks()
  })

  test('is told each time, and who may have taken it is looked up once in 5 s and known for a minute', async () => {
    const { watch, found, asked, emit } = bypassed('often', async () => CLIENTS)
    expect(watch.clients).toBeUndefined()
    await found('1')
    vi.advanceTimersByTime(4999)
    await found('2')
    expect(emit.mock.calls).toEqual(['1', '2'].map((jobId) => ['foreignWorker', { jobId }]))
    expect(asked.times).toBe(1)
    expect(watch.clients).toEqual([
      { name: 'plain', address: '10.0.0.7:1' },
      { name: '', address: '10.0.0.8:1' },
    ])
    vi.advanceTimersByTime(1)
    await found('3')
    expect(asked.times).toBe(2)
    vi.advanceTimersByTime(59_999)
    expect(watch.clients).toHaveLength(2)
    vi.advanceTimersByTime(1)
    expect(watch.clients).toBeUndefined()
  })

  test('is warned of once, with the clients that no worker of ours reports as its own', async () => {
    const { found, warnings } = bypassed('named', async () => CLIENTS, { w: '{"clientId":8}' })
    for (const jobId of ['1', '2']) {
      await found(jobId)
      vi.advanceTimersByTime(5000)
    }
    expect(warnings).toEqual([
      expect.stringContaining('job 1 was started past the meter, by "plain" at 10.0.0.7:1: it obeyed neither'),
    ])
  })

  test.each([
    ['not found', async () => ''],
    ['not to be listed', () => Promise.reject(new Error('NOPERM'))],
  ])('is warned of after 15 s where the clients are %s, without names', async (what, list) => {
    const { watch, found, warnings } = bypassed(what, list)
    for (const jobId of ['1', '2', '3']) {
      await found(jobId)
      vi.advanceTimersByTime(5000)
    }
    expect([watch.clients, warnings]).toEqual([[], []])
    await found('4')
    expect(warnings).toEqual([expect.stringContaining('job 4 was started past the meter: it obeyed neither')])
  })

  test('is no longer ascribed to clients that may no longer be listed', async () => {
    const lists = [async () => CLIENTS, () => Promise.reject(new Error('NOPERM'))]
    const { watch, found } = bypassed('revoked', async () => lists.shift()?.() ?? '')
    await found('1')
    expect(watch.clients).toHaveLength(2)
    vi.advanceTimersByTime(5000)
    await found('2')
    expect(watch.clients).toEqual([])
  })

  test('is warned of at once by another worker of the process that finds a name', async () => {
    await bypassed('two', async () => '').found('1')
    const { found, warnings } = bypassed('two', async () => CLIENTS)
    await found('2')
    expect(warnings).toHaveLength(1)
  })
})
