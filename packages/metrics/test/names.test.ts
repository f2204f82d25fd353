import { expect, test } from 'vitest'
import { METRICS } from '../src/create-metrics.ts'

test.each(METRICS)('$name keeps to the conventions of Prometheus', ({ name, type, unit, help }) => {
  expect(name).toMatch(/^sluice(_[a-z]+)+$/)
  expect(name.endsWith('_total')).toBe(type === 'counter')
  if (unit.startsWith('seconds')) expect(name).toMatch(/_seconds(_total)?$/)
  expect(name).not.toMatch(/_(ms|milliseconds|us|percent)\b/)
  expect(help).toMatch(/^[A-Z].*[^.\s]/)
})
