import { expect, test } from 'vitest'
import { rateLimitFields } from '../../src/responses/rate-limit-fields.ts'
import { INVALID, VALID } from './draft-examples.ts'
import { type ReadItem, readList } from './fields.ts'

const POLICY_KEYS = ['name', 'q', 'qu', 'w', 'pk']
const LIMIT_KEYS = ['name', 'r', 't', 'pk']

/** Parameters that a field does not define are comments. (sections 3.1 and 4.1) */
function withoutComments(items: readonly ReadItem[], keys: readonly string[]): ReadItem[] {
  return items.map((item) => Object.fromEntries(Object.entries(item).filter(([key]) => keys.includes(key))) as ReadItem)
}

test.each(VALID)('$section', ({ policy, limit, policies }) => {
  const fields = rateLimitFields(policies)
  expect(readList(fields['ratelimit-policy'])).toEqual(withoutComments(readList(policy), POLICY_KEYS))
  expect(readList(fields.ratelimit)).toEqual(withoutComments(readList(limit), LIMIT_KEYS))
  expect(Object.keys(fields).length).toBe([policy, limit].filter(Boolean).length)
})

test.each(INVALID)('$section: the same is told by the rules', ({ policy, policies }) => {
  const fields = rateLimitFields(policies)
  expect(Object.keys(fields)).toEqual(['ratelimit-policy'])
  const names = readList(fields['ratelimit-policy']).map(({ name }) => name)
  expect(names).toEqual(['quota'])
  const written = readList(policy).map((item) => ({ ...item, name: String(item.name) }))
  expect(readList(fields['ratelimit-policy'])).toEqual(written)
})
