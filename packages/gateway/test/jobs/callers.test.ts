import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { markOf, onceJobId } from '../../../../src/admission/idempotency-key.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { JobIds } from '../../src/jobs/job-id.ts'
import { fingerprintOf, scopedKey } from '../../src/jobs/post-jobs.ts'
import type { Identity } from '../../src/middleware.ts'
import { placeIn, post, queueOf, startGateway, told } from './support.ts'

const redis = useRedis(import.meta.url)
const place = placeIn(redis)
const ADA: Identity = { name: 'ada' }
const EVE: Identity = { name: 'eve' }
const KEY = 'order-4711'
const headers = { 'idempotency-key': KEY }
const BODY = '{"data":1}'

/** The jobs of a queue, as two callers see them. */
async function twoCallers(name: string) {
  const queues = { [name]: { schema: true, results: true } }
  const ada = await startGateway(place, queues, { identity: ADA })
  const eve = await startGateway(place, queues, { identity: EVE })
  return { ada: `${ada.url}/queues/${name}/jobs`, eve: `${eve.url}/queues/${name}/jobs` }
}

/** What anybody can reckon who knows a caller's name, key and request. */
function guesses(name: string, jobs = 1): string[] {
  const once = { key: scopedKey(ADA, KEY), fingerprint: fingerprintOf(Buffer.from(BODY)) }
  const bases = [`${redis.prefix}:${name}:`, name, '']
  return bases.map((base) => onceJobId(markOf(base, once, jobs), 0))
}

test.each<[string, string, Record<string, string>]>([
  ['by a key', BODY, headers],
  ['without a key', BODY, {}],
  ['several by a key', '[{"data":1},{"data":2}]', headers],
  ['several without a key', '[{"data":1},{"data":2}]', {}],
])(
  'a job belongs to the caller that added it: another one neither reads nor deletes it (%s)',
  async (how, body, sent) => {
    const name = how.replaceAll(' ', '-')
    const { ada, eve } = await twoCallers(name)
    const { id, jobs = [{ id }] } = (await told(post(ada, body, sent))) as { id?: string; jobs?: { id: string }[] }
    const ids = jobs.map((job) => job.id as string)
    expect(new Set(ids).size).toBe(ids.length)
    for (const known of [...ids, ...guesses(name, ids.length)]) {
      expect(await told(fetch(`${eve}/${known}`))).toMatchObject({ status: 404 })
      expect(await told(fetch(`${eve}/${known}`, { method: 'DELETE' }))).toMatchObject({ status: 404 })
    }
    expect(await queueOf(place, name).getWaitingCount()).toBe(ids.length)
    for (const known of ids) {
      expect(await told(fetch(`${ada}/${known}`))).toMatchObject({ status: 200, id: known })
      expect((await fetch(`${ada}/${known}`, { method: 'DELETE' })).status).toBe(204)
    }
  },
)

test('an id cannot be computed from the key, and is the same in every process', async () => {
  const { ada, eve } = await twoCallers('reckoned')
  const { id } = await told(post(ada, BODY, headers))
  expect(guesses('reckoned')).not.toContain(id)
  expect((await told(post(eve, BODY, headers))).id).not.toBe(id)
  // Started anew, and when the key has run out: a job that is there goes on standing for its request.
  const again = await startGateway(place, { reckoned: { schema: true } }, { identity: ADA })
  const client = redis.client()
  const before = await told(post(`${again.url}/queues/reckoned/jobs`, BODY, headers))
  await client.del(...(await client.keys(`${redis.prefix}:reckoned:meta:once:*`)))
  const after = await post(`${again.url}/queues/reckoned/jobs`, BODY, headers)
  expect(after.headers.get('idempotency-replayed')).toBe('true')
  expect([before.id, (await told(after)).id]).toEqual([id, id])
  expect(await queueOf(place, 'reckoned').getWaitingCount()).toBe(2)
})

test.each([1, 3])('a key holds although the secret is another one by now (%i jobs)', async (count) => {
  const name = `lost-secret-${count}`
  const body = count === 1 ? { data: 1 } : Array.from({ length: count }, (_, i) => ({ data: i }))
  const idsOf = (answer: Record<string, unknown>) => ((answer.jobs ?? [answer]) as { id: string }[]).map(({ id }) => id)
  const first = await startGateway(place, { [name]: { schema: true } })
  const ids = idsOf(await told(post(`${first.url}/queues/${name}/jobs`, body, headers)))
  await redis.client().del(`${redis.prefix}:${name}:meta:callers`)
  const second = await startGateway(place, { [name]: { schema: true } })
  const again = await post(`${second.url}/queues/${name}/jobs`, body, headers)
  expect(again.headers.get('idempotency-replayed')).toBe('true')
  expect(idsOf(await told(again))).toEqual(ids)
  expect(await queueOf(place, name).getWaitingCount()).toBe(count)
})

test.each([1, 3])('a key that was used before there was a secret stands for its %i jobs', async (count) => {
  const name = `upgraded-${count}`
  const body = JSON.stringify(count === 1 ? { data: 1 } : Array.from({ length: count }, (_, i) => ({ data: i })))
  const once = { key: scopedKey(undefined, KEY), fingerprint: fingerprintOf(Buffer.from(body)) }
  const jobs = Array.from({ length: count }, (_, i) => ({ name: 'job', data: i }))
  const { ids } = await queueOf(place, name).addOnce(jobs, once)
  const { url } = await startGateway(place, { [name]: { schema: true } })
  const again = await told(post(`${url}/queues/${name}/jobs`, body, headers))
  expect(((again.jobs ?? [again]) as { id: string }[]).map(({ id }) => id)).toEqual(ids)
  expect(await queueOf(place, name).getWaitingCount()).toBe(count)
})

/** Redis, as far as the secret goes. */
function store() {
  const kept = { secret: undefined as string | undefined, asked: 0 }
  return {
    kept,
    agree: async (proposed: string) => {
      kept.asked += 1
      kept.secret ??= proposed
      return kept.secret
    },
  }
}

test('a secret that Redis lost is put back by a process that knows it', async () => {
  const { kept, agree } = store()
  let nowMs = 0
  const old = new JobIds(agree, () => nowMs)
  const [id = ''] = await old.drawn(ADA, 1)
  kept.secret = undefined
  nowMs += 10_000
  await old.drawn(ADA, 1)
  const fresh = new JobIds(agree, () => nowMs)
  expect(await fresh.isOf(ADA, id)).toBe(true)
  expect(await fresh.isOf(EVE, id)).toBe(false)
  expect(await fresh.isOf(undefined, id)).toBe(false)
})

test('whoever comes with another secret is asked for it, once a second at most', async () => {
  const { kept, agree } = store()
  let nowMs = 0
  const old = new JobIds(agree, () => nowMs)
  await old.drawn(ADA, 1)
  kept.secret = undefined
  const [id = ''] = await new JobIds(agree, () => nowMs).drawn(ADA, 1)
  nowMs += 1000
  expect(await old.isOf(ADA, id)).toBe(true)
  const { asked } = kept
  for (let i = 0; i < 50; i++) expect(await old.isOf(ADA, `j_${randomBytes(20).toString('base64url')}`)).toBe(false)
  expect(kept.asked).toBe(asked)
})

test('what is no id of a job is not looked up, and asks nothing', async () => {
  const { kept, agree } = store()
  const ids = new JobIds(agree)
  for (const text of ['', 'meta', 'active', 'meta:callers', 'j_', `j_${'a'.repeat(28)}`, `j_${'a'.repeat(27)}-1000`]) {
    expect(await ids.isOf(ADA, text)).toBe(false)
  }
  expect(kept.asked).toBe(0)
})
