import { expect, test } from 'vitest'
import { caseCount } from '../../support/cases.ts'
import { type Decision, Decisions, decide } from './decisions.ts'
import { ReferenceKeys } from './reference.ts'
import { ALL_FEATURES, type Features } from './shape.ts'

const OPERATIONS = 500

/** The first operation that two models answer differently, both asked what the answers of the first lead to. */
function difference(seed: number, one: Features, other: Features): Decision | undefined {
  const decisions = new Decisions(seed, ALL_FEATURES)
  const models = [one, other].map((features) => new ReferenceKeys(decisions.shape, features, decisions.nowUs))
  for (let i = 0; i < OPERATIONS; i++) {
    const decision = decisions.next()
    const [taken, otherwise] = models.map((model) => decide(model, decision))
    if (JSON.stringify(taken) !== JSON.stringify(otherwise)) return decision
    decisions.note(taken as NonNullable<typeof taken>)
  }
  return undefined
}

test('the same seed asks the same, and is answered the same', () => {
  for (let seed = 1; seed <= caseCount(10); seed++) expect(difference(seed, ALL_FEATURES, ALL_FEATURES)).toBeUndefined()
})

test('a queue that keeps nothing is found out', () => {
  const seeds = Array.from({ length: 20 }, (_, seed) => seed)
  expect(seeds.some((seed) => difference(seed, ALL_FEATURES, { ...ALL_FEATURES, keep: false }))).toBe(true)
})
