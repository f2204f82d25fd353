import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { InvalidInputError } from '../../../../src/errors.ts'
import { createPoliteFetch, fetchPolitely, type PoliteFetchOptions } from '../../src/client/index.ts'

let server: Server | undefined

afterEach(async () => {
  server?.closeAllConnections()
  await new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)))
  server = undefined
})

async function listening(listener: RequestListener): Promise<string> {
  const started = createServer(listener)
  server = started
  await new Promise<void>((resolve) => started.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(started.address() as AddressInfo).port}`
}

test('a refused POST comes back no earlier than the server said, whole', async () => {
  const came: { atMs: number; body: string }[] = []
  const url = await listening(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    came.push({ atMs: performance.now(), body })
    if (came.length === 1) response.writeHead(429, { 'retry-after-ms': '80' }).end('{"type":"about:blank"}')
    else response.end('done')
  })
  const response = await fetchPolitely(`${url}/jobs`, { method: 'POST', body: 'a job' })
  expect(await response.text()).toBe('done')
  expect(came.map(({ body }) => body)).toEqual(['a job', 'a job'])
  expect((came[1]?.atMs ?? 0) - (came[0]?.atMs ?? 0)).toBeGreaterThanOrEqual(80)
})

test('calls that were made at once all get through, and only what was refused is sent again', async () => {
  let came = 0
  const url = await listening((_, response) => {
    if (++came <= 3) response.writeHead(429, { 'retry-after-ms': '20' })
    response.end()
  })
  const fetch = createPoliteFetch({ baseMs: 5 })
  const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => fetch(`${url}/${i}`)))
  expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200))
  expect(came).toBe(13)
})

test.each([100, 200_000])('the last refusal can be read, all %i bytes of it', async (length) => {
  let came = 0
  const url = await listening((_, response) => {
    came++
    response.writeHead(503, { 'retry-after-ms': '1' }).end('x'.repeat(length))
  })
  const response = await createPoliteFetch({ attempts: 3, baseMs: 1 })(url)
  expect(response.status).toBe(503)
  expect((await response.text()).length).toBe(length)
  expect(came).toBe(3)
})

test('a signal still ends the body, as with fetch', async () => {
  const url = await listening((_, response) => {
    response.writeHead(200).write('first, ')
  })
  const stop = new AbortController()
  const response = await fetchPolitely(url, { signal: stop.signal })
  stop.abort()
  await expect(response.text()).rejects.toMatchObject({ name: 'AbortError' })
})

test('nobody there: what fetch throws, after all attempts', async () => {
  const url = await listening(() => {})
  await new Promise((resolve) => server?.close(resolve))
  let times = 0
  const fetch = createPoliteFetch({
    attempts: 3,
    baseMs: 1,
    fetch: (input, init) => {
      times++
      return globalThis.fetch(input, init)
    },
  })
  await expect(fetch(url)).rejects.toThrow(TypeError)
  expect(times).toBe(3)
})

const OPTIONS = 'fetch, attempts, baseMs, capMs, timeoutMs, slowBelow, maxBuckets, onWait'

test.each<[PoliteFetchOptions, string]>([
  [{ attempts: 0 }, 'attempts must be a whole number >= 1; got 0'],
  [{ attempts: 1.5 }, 'attempts must be a whole number >= 1; got 1.5'],
  [{ baseMs: -1 }, 'baseMs must be a number of ms >= 0; got -1'],
  [{ capMs: '1' as never }, 'capMs must be a number of ms >= 0; got "1"'],
  [{ timeoutMs: Number.POSITIVE_INFINITY }, 'timeoutMs must be a number of ms >= 0; got Infinity'],
  [{ slowBelow: 1.1 }, 'slowBelow must be a number from 0 to 1; got 1.1'],
  [{ maxBuckets: 0 }, 'maxBuckets must be a whole number >= 1; got 0'],
  [{ fetch: null as never }, 'fetch must be a function; got null'],
  [{ onWait: {} as never }, 'onWait must be a function; got {}'],
  [null as never, `createPoliteFetch takes an object of options, of ${OPTIONS}; got null`],
  [5 as never, `createPoliteFetch takes an object of options, of ${OPTIONS}; got 5`],
  [{ retries: 3 } as never, `createPoliteFetch has no option 'retries'; it has ${OPTIONS}`],
])('%j is refused: %s', (options, message) => {
  expect(() => createPoliteFetch(options)).toThrow(InvalidInputError)
  expect(() => createPoliteFetch(options)).toThrow(message)
})
