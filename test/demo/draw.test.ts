import { describe, expect, test } from 'vitest'
import { bar, panel, plainText, type QueueProgress, sparkline } from '../../workers/demo/draw.ts'

const progress: QueueProgress = {
  title: 'emails',
  lines: 750,
  accepted: 300,
  refused: 12,
  depth: 200,
  capacity: 200,
  arrived: 100,
  halfSeconds: [0, 25, 25, 24, 26],
  ratePerSecond: 50,
}

describe('bar', () => {
  test.each([
    [0, 10, '····'],
    [5, 10, '██··'],
    [10, 10, '████'],
    [12, 10, '████'],
    [1, 32, '▏···'],
    [9, 32, '█▏··'],
    [0, 0, '····'],
  ])('%i of %i', (done, total, expected) => {
    expect(bar(done, total, 4)).toBe(expected)
  })
})

test('sparkline scales to the top and shows anything above zero', () => {
  expect(sparkline([0, 1, 50, 100, 400], 100)).toBe(' ▁▄██')
})

describe('panel', () => {
  test('shows refusals, depth, both bars and the rate', () => {
    const lines = panel(progress, 80)
    expect(lines[0]).toBe('emails: refused 12, depth 200 of 200')
    expect(lines[1]).toMatch(/^ {2}accepted +█+▎?·* 300 of 750$/)
    expect(lines[2]).toMatch(/^ {2}arrived +█+.?·* 100 of 750$/)
    expect(lines[3]).toMatch(/^ {2}departed +▄▄▄▅ 50\/s$/)
  })

  test.each([20, 40, 80, 200])('fits %i columns', (columns) => {
    for (const line of panel(progress, columns)) expect(line.length).toBeLessThanOrEqual(columns)
  })
})

test('plainText leaves out a capacity there is not', () => {
  expect(plainText({ ...progress, capacity: undefined })).toBe(
    'emails: accepted 300, refused 12, depth 200, departing 50/s, arrived 100 of 750',
  )
})
