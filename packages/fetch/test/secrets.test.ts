import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { useFetches } from './fetches.ts'
import { useServer } from './server.ts'

const SECRET = 'CANARY-"p@ss"\\-1'
const server = useServer()
const open = useFetches()

const openHere = (baseUrl = server.url, timeoutMs?: number) => {
  const headers = { authorization: { env: 'TOKEN', prefix: 'Bearer ' } }
  return open({ targets: { here: { baseUrl, headers } }, env: { TOKEN: SECRET }, timeoutMs })
}

/** All that is known of what came of a request: the answer, or the error with its properties and causes. */
async function tracesOf(asking: Promise<unknown>): Promise<string> {
  const came = await asking.catch((error: unknown) => error)
  return `${inspect(came, { depth: Number.POSITIVE_INFINITY, showHidden: true })}${JSON.stringify(came)}`
}

test.each([200, 302, 401, 500])('an answer of status %i that repeats the secret holds it no more', async (status) => {
  server.answer((request, response) => {
    const { authorization = '' } = request.headers
    const headers = {
      'content-type': 'application/json',
      location: `/?${authorization}`,
      'x-request-id': authorization,
    }
    response.writeHead(status, headers).end(JSON.stringify({ authorization, headers: request.rawHeaders }))
  })
  const traces = await tracesOf(openHere()({ target: 'here' }))
  expect(server.requests[0]?.headers.authorization).toBe(`Bearer ${SECRET}`)
  expect(traces).toContain('[redacted]')
  expect(traces).not.toContain('CANARY')
})

test('a refusal that breaks off inside of the secret holds nothing of it', async () => {
  server.answer((request, response) => {
    const said = `said ${request.headers.authorization}`.slice(0, -3)
    response.writeHead(429, { 'content-length': 500 }).write(said)
    setImmediate(() => response.destroy())
  })
  expect(await tracesOf(openHere()({ target: 'here' }))).not.toContain('CANARY')
})

test('a text that repeats the secret holds it no more', async () => {
  server.answer((request, response) => response.end(`you said ${request.headers.authorization}`))
  expect(await openHere()({ target: 'here' })).toMatchObject({ body: 'you said Bearer [redacted]' })
})

test('no error about the connection or the request holds the secret', async () => {
  const traces = [
    await tracesOf(openHere()({ target: 'here', path: '/../x', headers: { authorization: 'mine' } })),
    await tracesOf(openHere('http://127.0.0.1:1')({ target: 'here' })),
  ]
  server.answer((request) => request.socket.destroy())
  traces.push(await tracesOf(openHere()({ target: 'here' })))
  server.answer(() => undefined)
  traces.push(await tracesOf(openHere(server.url, 100)({ target: 'here' })))
  expect(traces.map((text) => /^\w*Error: .*/.exec(text)?.[0])).toEqual([
    expect.stringContaining('InvalidRequestError'),
    expect.stringContaining('RequestFailedError'),
    expect.stringContaining('RequestFailedError'),
    expect.stringContaining('RequestTimeoutError'),
  ])
  expect(traces.join()).not.toContain('CANARY')
})

test('an answer that is not HTTP and repeats the secret fails without it', async () => {
  const echo = createServer((socket) => socket.on('data', (data) => socket.end(data)))
  echo.listen(0, '127.0.0.1')
  await once(echo, 'listening')
  const traces = await tracesOf(
    openHere(`http://127.0.0.1:${(echo.address() as AddressInfo).port}`)({ target: 'here' }),
  )
  expect(traces).toContain('POST to target "here" failed: ')
  expect(traces).not.toContain('CANARY')
  echo.close()
  await once(echo, 'close')
})
