import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { METRICS } from '../../src/metrics/create-metrics.ts'
import { ROOT } from '../package/code-blocks.ts'

const text = readFileSync(join(ROOT, 'docs', 'metrics.md'), 'utf8')

/** The row of a metric as docs/metrics.md has it. */
function rowOf({ name, type, unit, help, labels }: (typeof METRICS)[number]): string {
  const shown = Object.entries(labels).map(([label, values]) =>
    [`\`${label}\``, ...(values.length > 0 ? [values.map((value) => `\`${value}\``).join(', ')] : [])].join(': '),
  )
  return `| \`${name}\` | ${type} | ${shown.join('; ') || 'none'} | ${unit} | ${help} |`
}

test('docs/metrics.md has every metric as it is told, and no other', () => {
  const [, table = ''] = text.split('| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n')
  expect(table.split('\n\n')[0]?.split('\n')).toEqual(METRICS.map(rowOf))
})

test.each(METRICS)('$name keeps to the conventions of Prometheus', ({ name, type, unit, help }) => {
  expect(name).toMatch(/^sluice(_[a-z]+)+$/)
  expect(name.endsWith('_total')).toBe(type === 'counter')
  if (unit.startsWith('seconds')) expect(name).toMatch(/_seconds(_total)?$/)
  expect(name).not.toMatch(/_(ms|milliseconds|us|percent)\b/)
  expect(help).toMatch(/^[A-Z].*[^.\s]/)
})
