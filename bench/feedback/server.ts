import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '../fleet/calls.ts'
import type { Arrivals, ServerMethods } from './protocol.ts'
import { TokenBucket } from './token-bucket.ts'

// The downstream: an HTTP server on loopback, which accepts jobs by the number in their path, or answers 429.

/** From the arrival of a call to its answer, as for a nearby service. */
const ANSWER_MS = 20

const accepted = new Set<string>()
let twice = 0
let bucket: TokenBucket | undefined
let spoiled: number | undefined
let since = { atMs: performance.now(), sent: 0, refused: 0, bad: 0 }

function arrivals(): Arrivals {
  const { atMs, ...counts } = since
  since = { atMs: performance.now(), sent: 0, refused: 0, bad: 0 }
  return { ms: since.atMs - atMs, ...counts }
}

/** @returns undefined where it is accepted, else the ms until the next one would be */
function arrive(job: string): number | undefined {
  since.sent += 1
  const waitMs = bucket?.take(performance.now())
  if (waitMs !== undefined) since.refused += 1
  else if (accepted.has(job)) twice += 1
  else accepted.add(job)
  return waitMs
}

/** The choice is stable for each job, and does not depend on the format of the ids. */
function isBad(job: string): boolean {
  return spoiled !== undefined && createHash('md5').update(job).digest().readUInt32LE() % spoiled === 0
}

const answer: RequestListener = (request, response) => {
  if (isBad(request.url as string)) {
    since.sent += 1
    since.bad += 1
    setTimeout(() => response.writeHead(503, { 'Content-Length': 0 }).end(), ANSWER_MS)
    return
  }
  const waitMs = arrive(request.url as string)
  const headers = { 'Content-Length': 0 }
  setTimeout(() => {
    if (waitMs === undefined) response.writeHead(200, headers).end()
    // Whole seconds, rounded up (RFC 9110 §10.2.3).
    else response.writeHead(429, { ...headers, 'Retry-After': Math.ceil(waitMs / 1000) }).end()
  }, ANSWER_MS)
}

const server = createServer(answer)
// Connections stay open between calls, however long the pause.
server.keepAliveTimeout = 0

serve<ServerMethods>({
  listen: async () => {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  },
  impose: async (limit) => {
    bucket = limit && new TokenBucket(limit, performance.now())
    return arrivals()
  },
  spoil: async (oneIn) => {
    spoiled = oneIn
  },
  arrivals: async () => arrivals(),
  jobs: async () => ({ accepted: accepted.size, twice }),
})
