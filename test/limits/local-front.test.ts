import { expect, test } from 'vitest'
import type { LimitAnswer } from '../../src/limits/answer.ts'
import { LimitSet } from '../../src/limits/limit.ts'
import { LocalFront } from '../../src/limits/local-front.ts'
import type { LocalLimiting } from '../../src/limits/local-options.ts'

/** A front whose Redis answers when it is told to: each call that was made, and what answers it. */
function slowFront(local: LocalLimiting) {
  const options = { name: 'slow', rate: '20/h', burst: 20, ...local }
  const limit = new LimitSet(options).base
  const asked: { readonly cost: number; answer(allowed: boolean): void }[] = []
  const front = LocalFront.of(options, {
    limitOf: () => limit,
    take: (_limit, _key, cost) =>
      new Promise<LimitAnswer>((resolve) => {
        const said = { limit: 20, remaining: 0, resetAt: new Date(), policy: 'slow' }
        const answer = (allowed: boolean) => resolve({ ...said, allowed, retryAfterMs: allowed ? 0 : 60_000 })
        asked.push({ cost, answer })
      }),
    nowMs: Date.now,
    outage: (): never => {
      throw new Error('this Redis is always there')
    },
  }) as LocalFront
  /** Takes, while it is under way does something, and says what Redis answers. */
  const take = async (allowed: boolean, meanwhile = () => {}): Promise<LimitAnswer> => {
    const taking = front.take('joe', 1)
    meanwhile()
    asked.at(-1)?.answer(allowed)
    return taking
  }
  return { front, asked, take }
}

test.each([
  ['forgotten', (front: LocalFront) => front.forget('joe')],
  ['given units back', (front: LocalFront) => front.gaveBack('joe')],
  ['set to another mode', (front: LocalFront) => front.setMode('shadow')],
])('a refusal that was under way when the key was %s is not remembered', async (_, meanwhile) => {
  const { front, asked, take } = slowFront({ mitigation: true })
  expect((await take(false, () => meanwhile(front))).allowed).toBe(false)
  expect((await take(false)).allowed).toBe(false)
  expect(asked).toHaveLength(2)
  await take(false)
  expect(asked, 'the second one is').toHaveLength(2)
})

test.each([
  ['forgotten', (front: LocalFront) => front.forget('joe')],
  ['set to another mode', (front: LocalFront) => front.setMode('shadow')],
])('a lease that was under way when the key was %s leaves nothing in memory', async (_, meanwhile) => {
  const { front, asked, take } = slowFront({ sync: { intervalMs: 60_000, share: 0.5 } })
  expect(await take(true, () => meanwhile(front))).toMatchObject({ allowed: true, remaining: 0 })
  expect(await take(true)).toMatchObject({ allowed: true, remaining: 9 })
  expect(asked.map((call) => call.cost)).toEqual([10, 10])
  await take(true)
  expect(asked).toHaveLength(2)
})
