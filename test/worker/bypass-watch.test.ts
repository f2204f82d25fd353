import { expect, test } from 'vitest'
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

// A rejection that no one handles would fail the run.
test.each([
  ['may not ask', { clientInfo: () => Promise.reject(new Error('NOPERM')) }],
  ['cannot ask', {}],
])('with a client that %s it stays unknown', async (_, client) => {
  const watch = watchOf(client)
  await new Promise((resolve) => setImmediate(resolve))
  expect(watch.clientId).toBeUndefined()
})
