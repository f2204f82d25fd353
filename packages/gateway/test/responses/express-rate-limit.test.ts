import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import { type RateLimitInfo, rateLimit } from 'express-rate-limit'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Policy } from '../../src/responses/policy.ts'
import { problemResponse } from '../../src/responses/problem.ts'
import { type HeaderForm, rateLimitFields } from '../../src/responses/rate-limit-fields.ts'
import { readList } from './fields.ts'

const LIMIT = 3
const WINDOW_MS = 90_000
/** Not on a whole second. */
const START_MS = Date.UTC(2026, 10, 21, 12) + 123

let server: Server | undefined

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: START_MS })
})

afterEach(async () => {
  vi.useRealTimers()
  server?.closeAllConnections()
  await new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)))
  server = undefined
})

/** What express-rate-limit answers to four requests, 10.4 s apart, and the figures that it had. The last one is refused. */
async function answers(standardHeaders: 'draft-6' | 'draft-7' | 'draft-8' | false) {
  const infos: Required<RateLimitInfo>[] = []
  const app = express()
  const tell = (request: express.Request) =>
    infos.push((request as never as { rateLimit: (typeof infos)[0] }).rateLimit)
  app.use(
    rateLimit({
      limit: LIMIT,
      windowMs: WINDOW_MS,
      standardHeaders,
      legacyHeaders: standardHeaders === false,
      identifier: 'orders',
      handler: (request, response) => {
        tell(request)
        response.status(429).end()
      },
    }),
    (request, response) => {
      tell(request)
      response.end()
    },
  )
  const started = createServer(app)
  server = started
  await new Promise<void>((resolve) => started.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(started.address() as AddressInfo).port}/`
  const said: { headers: Headers; status: number; info: Required<RateLimitInfo>; nowMs: number }[] = []
  for (let i = 0; i <= LIMIT; i++) {
    const { headers, status } = await fetch(url)
    said.push({ headers, status, info: infos[i] as Required<RateLimitInfo>, nowMs: Date.now() })
    vi.setSystemTime(Date.now() + 10_400)
  }
  return said
}

function policyOf({ limit, remaining, resetTime }: RateLimitInfo): Policy {
  const resetAtMs = (resetTime as Date).getTime()
  return { name: 'orders', quota: limit, remaining, windowMs: WINDOW_MS, resetAtMs }
}

test('draft-8: the same lists, but for its partition key, which stands only in the policy', async () => {
  for (const { headers, info, nowMs } of await answers('draft-8')) {
    const [theirs] = readList(headers.get('ratelimit-policy') ?? undefined)
    const partitionKey = Uint8Array.from(Buffer.from(theirs?.pk as string, 'hex'))
    const ours = rateLimitFields([{ ...policyOf(info), partitionKey }], ['draft-10'], nowMs)
    expect(readList(ours['ratelimit-policy'])).toEqual([theirs])
    const [limit] = readList(headers.get('ratelimit') ?? undefined)
    expect(readList(ours.ratelimit)).toEqual([{ ...limit, pk: theirs?.pk }])
  }
})

test('draft-7: the same fields', async () => {
  for (const { headers, info, nowMs } of await answers('draft-7')) {
    const ours = rateLimitFields([policyOf(info)], ['draft-7'], nowMs)
    expect(ours).toEqual({ ratelimit: headers.get('ratelimit'), 'ratelimit-policy': headers.get('ratelimit-policy') })
  }
})

test.each<{ theirs: 'draft-6' | false; form: HeaderForm; family: string }>([
  { theirs: 'draft-6', form: 'draft-6', family: 'ratelimit' },
  { theirs: false, form: 'x-ratelimit', family: 'x-ratelimit' },
])('$form: the same fields, letter by letter', async ({ theirs, form, family }) => {
  const said = await answers(theirs)
  expect(said.map(({ status }) => status)).toEqual([200, 200, 200, 429])
  for (const { headers, info, nowMs } of said) {
    const all = Object.fromEntries([...headers].filter(([name]) => name.startsWith(family)))
    expect(Object.keys(all).length).toBeGreaterThanOrEqual(3)
    expect(rateLimitFields([policyOf(info)], [form], nowMs)).toEqual(all)
  }
})

test('refused: Retry-After begins where its does', async () => {
  const { headers, info, nowMs } = (await answers('draft-8')).at(-1) as Awaited<ReturnType<typeof answers>>[0]
  const retryAfterMs = (info.resetTime as Date).getTime() - nowMs
  const terms = { status: 429, kind: 'quota-exceeded', detail: 'Too many.', retryAfterMs } as const
  const answer = problemResponse({ ...terms, policies: [policyOf(info)] }, { nowMs, random: () => 0 })
  expect(answer.headers['retry-after']).toBe(headers.get('retry-after'))
})
