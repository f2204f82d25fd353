import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

// The downstream: an HTTP server on loopback, which accepts jobs by the number in their path, or answers 429.

/** From the arrival of a call to its answer, as for a nearby service. */
const ANSWER_MS = 20
const NONE = { sent: 0, refused: 0, bad: 0 }

const accepted = new Set<string>()
let twice = 0
let spoiled: number | undefined
/** A token bucket, full at first. */
let bucket: { readonly perSecond: number; readonly burst: number; tokens: number; atMs: number } | undefined
let since = { atMs: performance.now(), ...NONE }

/** Calls that reached the server since the last call of this: those answered with 429, and those of bad jobs. */
function takeArrivals() {
  const { atMs, ...counts } = since
  since = { atMs: performance.now(), ...NONE }
  return { ms: since.atMs - atMs, ...counts }
}

/** The ms until a call is accepted; undefined if it is at once. */
function waitMs(): number | undefined {
  if (!bucket) return undefined
  const { perSecond, burst, tokens, atMs } = bucket
  bucket.atMs = performance.now()
  bucket.tokens = Math.min(burst, tokens + ((bucket.atMs - atMs) * perSecond) / 1000)
  if (bucket.tokens < 1) return ((1 - bucket.tokens) / perSecond) * 1000
  bucket.tokens -= 1
  return undefined
}

/** The choice is stable for each job, and does not depend on the format of the ids. */
function isBad(job: string): boolean {
  return spoiled !== undefined && createHash('md5').update(job).digest().readUInt32LE() % spoiled === 0
}

function statusOf(job: string): [status: number, headers?: { 'Retry-After': number }] {
  since.sent += 1
  if (isBad(job)) {
    since.bad += 1
    return [503]
  }
  const refusedMs = waitMs()
  if (refusedMs !== undefined) {
    since.refused += 1
    // Whole seconds, rounded up (RFC 9110 §10.2.3).
    return [429, { 'Retry-After': Math.ceil(refusedMs / 1000) }]
  }
  if (accepted.has(job)) twice += 1
  accepted.add(job)
  return [200]
}

const server = createServer((request, response) => {
  const [status, headers] = statusOf(request.url as string)
  setTimeout(() => response.writeHead(status, { 'Content-Length': 0, ...headers }).end(), ANSWER_MS)
})
// Connections stay open between calls, however long the pause.
server.keepAliveTimeout = 0

export const methods = {
  /** @returns its URL */
  async listen(): Promise<string> {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  },
  /** Sets the limit from now on; null: none. */
  async impose(limit: { perSecond: number; burst: number } | null) {
    bucket = limit ? { ...limit, tokens: limit.burst, atMs: performance.now() } : undefined
    return takeArrivals()
  },
  /** From now on, one in `oneIn` jobs is never accepted: 503, without a Retry-After. */
  async spoil(oneIn: number): Promise<void> {
    spoiled = oneIn
  },
  arrivals: async () => takeArrivals(),
  /** Jobs accepted so far, and how often a job was accepted that had been accepted before. */
  jobs: async () => ({ accepted: accepted.size, twice }),
}
