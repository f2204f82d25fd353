import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { safeShape } from '../../src/index.ts'

const document = readFileSync(new URL('../../docs/limiters.md', import.meta.url), 'utf8')
const [tree = '', table = ''] = document.split('\n### Side by side\n')
const ALGORITHMS = [
  ...['fixed-window', 'sliding-window-log', 'sliding-window-counter'],
  ...['token-bucket', 'leaky-bucket', 'gcra'],
]

test('row 26: choosing, a decision tree for each kind of traffic, and memory, accuracy and bursts side by side', () => {
  for (const algorithm of [...ALGORITHMS, 'concurrency']) expect(tree, algorithm).toContain(`\`${algorithm}\``)
  const rows = table.split('\n').filter((line) => line.startsWith('| '))
  const [head = ''] = rows
  for (const column of ['boundary', 'bytes', 'commands']) expect(head).toContain(column)
  for (const algorithm of ALGORITHMS) {
    const row = rows.find((line) => line.startsWith(`| \`${algorithm}\``))
    expect(row, algorithm).toBeDefined()
    // Figures, not words.
    expect(row?.match(/\d+/g)?.length, algorithm).toBeGreaterThanOrEqual(4)
  }
})

test('the shape that docs/limiters.md shows for a provider is what safeShape computes', () => {
  const [, input = ''] = /safeShape\((\{ quota: .*? \})\)/.exec(document) ?? []
  expect(input).toBe('{ quota: 100, windowMs: 60_000, burst: 10, jitterMs: 500 }')
  const { rate, burst } = safeShape({ quota: 100, windowMs: 60_000, burst: 10, jitterMs: 500 })
  expect(burst).toBe(10)
  expect(rate.period).toBeCloseTo(664.8, 1)
})
