import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { fetchPolitely } from '../../src/client/index.ts'
import type { HttpResponse } from '../../src/middleware.ts'
import type { Policy } from '../../src/responses/policy.ts'
import { problemResponse } from '../../src/responses/problem.ts'
import { type HeaderForm, rateLimitFields } from '../../src/responses/rate-limit-fields.ts'
import { politeClient, type Script } from '../client/scripted-server.ts'

const FORMS: HeaderForm[][] = [
  ['draft-10'],
  ['draft-7'],
  ['draft-6'],
  ['x-ratelimit'],
  ['x-ratelimit-delta'],
  ['draft-10', 'draft-6', 'x-ratelimit'],
  ['draft-7', 'draft-6', 'x-ratelimit-delta'],
]
const URL = 'https://api.example.com/jobs'

const scriptOf = ({ status, headers, body }: HttpResponse): Script => ({ status, headers, ...(body && { body }) })

test.each(FORMS)('a refused client of %s comes back no earlier than Retry-After', async (...forms) => {
  const policy: Policy = { name: 'admit', quota: 10, remaining: 0, windowMs: 60_000, resetMs: 40_000 }
  let told = 0
  const { fetch, clock, starts } = politeClient((_, index) => {
    if (index > 0) return {}
    const terms = { status: 429, kind: 'quota-exceeded', detail: 'Full.', retryAfterMs: 40_000, forms } as const
    const answer = problemResponse(
      { ...terms, policies: [policy], violatedPolicies: ['admit'] },
      { nowMs: clock.epochMs() },
    )
    told = Number(answer.headers['retry-after'])
    return scriptOf(answer)
  })
  const response = fetch(URL, { method: 'POST', body: 'a job' })
  await clock.advance(60_000)
  expect((await response).status).toBe(200)
  expect(told).toBeGreaterThanOrEqual(40)
  expect(starts()).toEqual([0, told * 1000])
})

test.each(FORMS)('a client of %s whose quota is used up sends the next request after the reset', async (...forms) => {
  const policy: Policy = { name: 'admit', quota: 10, remaining: 0, windowMs: 60_000, resetMs: 30_000 }
  const { fetch, clock, starts } = politeClient(() => ({ headers: rateLimitFields([policy], forms, clock.epochMs()) }))
  await fetch(URL)
  const next = fetch(URL)
  await clock.advance(29_999)
  expect(starts()).toEqual([0])
  await clock.advance(2000)
  expect((await next).status).toBe(200)
  expect(starts()).toHaveLength(2)
})

test('a client holds the partition that is used up, and no other one', async () => {
  const { fetch, clock, starts } = politeClient(({ url }, index) => {
    const partitionKey = url.slice(-1)
    const remaining = partitionKey === 'a' && index < 2 ? 0 : 9
    const policy: Policy = { name: 'admit', quota: 10, remaining, resetMs: 30_000, partitionKey }
    return { headers: rateLimitFields([policy], ['draft-10'], clock.epochMs()) }
  })
  await fetch(`${URL}/b`)
  await fetch(`${URL}/a`)
  const held = fetch(`${URL}/a`)
  await fetch(`${URL}/b`)
  expect(starts()).toEqual([0, 0, 0])
  await clock.advance(31_000)
  expect((await held).status).toBe(200)
  expect(starts().at(-1)).toBeGreaterThanOrEqual(30_000)
})

test('over a socket: 503 is obeyed, and the refused job is sent again', async () => {
  const cameMs: number[] = []
  const server = createServer((_request, response) => {
    cameMs.push(performance.now())
    const terms = { status: 503, kind: 'temporary-reduced-capacity', detail: 'Not now.', retryAfterMs: 300 } as const
    const { status, headers, body } =
      cameMs.length > 1 ? { status: 202, headers: {}, body: '' } : problemResponse(terms)
    response.writeHead(status, headers).end(body)
  })
  onTestFinished(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const response = await fetchPolitely(url, { method: 'POST', body: 'a job' })
  expect(response.status).toBe(202)
  expect((cameMs[1] as number) - (cameMs[0] as number)).toBeGreaterThanOrEqual(1000)
})
