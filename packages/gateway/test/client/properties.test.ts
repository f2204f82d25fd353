import fc from 'fast-check'
import { expect, test } from 'vitest'
import { politeClient, type Script } from './scripted-server.ts'

const HOST = 'https://api.example.com'
const HOUR = 3_600_000

interface Refusal {
  readonly kind: 'refusal'
  readonly retryAfterS: number
  readonly bucket: number
}
interface Other {
  readonly kind: 'good' | 'failure' | 'lost'
  readonly bucket: number
}

const answers = fc.array(
  fc.record({
    latencyMs: fc.nat(3000),
    said: fc.oneof(
      fc.record({ kind: fc.constant<'refusal'>('refusal'), retryAfterS: fc.nat(30), bucket: fc.nat(2) }),
      fc.record({ kind: fc.constantFrom<Other['kind']>('good', 'failure', 'lost'), bucket: fc.nat(2) }),
    ) satisfies fc.Arbitrary<Refusal | Other>,
  }),
  { minLength: 1, maxLength: 30 },
)
const calls = fc.array(fc.record({ afterMs: fc.nat(5000), path: fc.nat(3), method: fc.constantFrom('GET', 'POST') }), {
  minLength: 1,
  maxLength: 15,
})

/** Bucket 0 is that of the origin. */
function scriptOf(said: Refusal | Other, afterMs: number): Script {
  const headers: Record<string, string> = said.bucket > 0 ? { 'x-ratelimit-bucket': `b${said.bucket}` } : {}
  if (said.kind === 'lost') return { error: new TypeError('fetch failed'), afterMs }
  if (said.kind === 'good') return { headers, afterMs }
  if (said.kind !== 'refusal') return { status: 500, headers, afterMs }
  return { status: 429, headers: { ...headers, 'retry-after': String(said.retryAfterS) }, afterMs }
}

test('nothing is sent before the time that was given, nor more often than attempts allow, and every call ends', async () => {
  await fc.assert(
    fc.asyncProperty(
      answers,
      calls,
      fc.integer({ min: 1, max: 4 }),
      fc.double({ min: 0, max: 0.99, noNaN: true }),
      async (script, planned, attempts, chance) => {
        const held: { fromMs: number; untilMs: number; bucket: number }[] = []
        const bucketOf = new Map<string, number>()
        const mistakes: string[] = []
        const { fetch, clock, sent, client } = politeClient(
          ({ atMs, url, method }, i) => {
            const route = `${method} ${url.replace(/\?.*/, '')}`
            for (const { fromMs, untilMs, bucket } of held) {
              const isMine = bucket === 0 || bucketOf.get(route) === bucket
              if (isMine && atMs >= fromMs && atMs < untilMs)
                mistakes.push(`${route} at ${atMs}, held until ${untilMs}`)
            }
            const { said, latencyMs } = script[i % script.length] as (typeof script)[number]
            const answeredMs = atMs + latencyMs
            // A bucket that it names holds for its path from the answer on.
            clock.after(latencyMs, () => {
              if (said.kind !== 'lost' && said.bucket > 0) bucketOf.set(route, said.bucket)
              // In the same instant others may start before the answer is read.
              if (!('retryAfterS' in said)) return
              held.push({
                fromMs: answeredMs + 0.001,
                untilMs: answeredMs + said.retryAfterS * 1000,
                bucket: said.bucket,
              })
            })
            return scriptOf(said, latencyMs)
          },
          { attempts, timeoutMs: 24 * HOUR },
        )
        clock.chance = chance
        let ended = 0
        for (const [i, { afterMs, path, method }] of planned.entries()) {
          await clock.advance(afterMs)
          const count = () => ended++
          fetch(`${HOST}/${path}?${i}`, { method }).then(count, count)
        }
        await clock.advance(HOUR)
        const times = planned.map((_, i) => sent.filter(({ url }) => url.endsWith(`?${i}`)).length)
        expect(mistakes).toEqual([])
        expect(times.every((one) => one >= 1 && one <= attempts)).toBe(true)
        expect(ended).toBe(planned.length)
        expect(client.size.waiting).toBe(0)
        expect(clock.timers).toBe(0)
      },
    ),
    { numRuns: 80 },
  )
})

test('whenever it is aborted, a call ends at once and leaves nothing behind', async () => {
  await fc.assert(
    fc.asyncProperty(answers, calls, fc.nat(60_000), async (script, planned, abortMs) => {
      const { fetch, clock, sent, client } = politeClient((_, i) => {
        const { said, latencyMs } = script[i % script.length] as (typeof script)[number]
        return scriptOf(said, latencyMs)
      })
      const stop = new AbortController()
      let ended = 0
      for (const { path, method } of planned) {
        const count = () => ended++
        fetch(`${HOST}/${path}`, { method, signal: stop.signal }).then(count, count)
      }
      await clock.advance(abortMs)
      const before = sent.length
      stop.abort()
      await clock.advance(0)
      expect(ended).toBe(planned.length)
      expect(client.size.waiting).toBe(0)
      // Those of the script's answers that are on their way are the server's, not the client's.
      await clock.advance(HOUR)
      expect(sent.length).toBe(before)
      expect(clock.timers).toBe(0)
    }),
    { numRuns: 80 },
  )
})
