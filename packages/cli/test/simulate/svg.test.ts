import { describe, expect, test } from 'vitest'
import type { Point } from '../../src/simulate/series.ts'
import { countMarks, drawSimulation, timeMarks } from '../../src/simulate/svg.ts'

function series(points: readonly Point[], rate: readonly Point[] = []) {
  return { depth: points, waitP50: points, waitP95: points, rate }
}

const label = `<script>alert("1")</script> & 'others' \u0007`
const svg = drawSimulation({
  title: 'Waits & queue',
  subtitle: '10 arrivals within 1h',
  shapes: [
    {
      label: 'rate=8/s',
      note: 'p95 1s',
      series: series([
        [0, 3],
        [1800, 250],
        [3600, 1],
      ]),
    },
    { label, note: 'nothing started', series: series([]) },
  ],
})

/** Each end closes what was opened last; texts hold no mark that is not escaped. */
function openTags(xml: string): string[] {
  const open: string[] = []
  for (const [, end, name, more, text] of xml.matchAll(/<(\/?)([a-zA-Z]+)((?:\s[\w-]+="[^"<]*")*)\s*\/?>([^<]*)/g)) {
    if (end) expect(open.pop()).toBe(name)
    else open.push(name as string)
    expect(text).not.toMatch(/&(?!(amp|lt|gt|quot);)|>/)
    expect(more).not.toMatch(/&(?!(amp|lt|gt|quot);)/)
  }
  return open
}

describe('the plot', () => {
  test('is well-formed', () => {
    const withoutEmpty = svg.replaceAll(/<(\w+)((?:\s[\w-]+="[^"<]*")*)\s*\/>/g, '')
    expect(openTags(withoutEmpty)).toEqual([])
    // Nothing is left beside its tags and texts.
    expect(svg.split('<').length - 1).toBe([...svg.matchAll(/<\/?[a-zA-Z]+(?:\s[\w-]+="[^"<]*")*\s*\/?>/g)].length)
  })

  test('says what it shows, and shows nothing of others as markup', () => {
    expect(svg).toContain('<title id="title">Waits &amp; queue</title>')
    expect(svg).toContain('rate=8/s: p95 1s')
    expect(svg).not.toContain('<script')
    expect(svg).not.toContain('\u0007')
    for (const text of ['20 min', '60 min', '200', 'time since the first arrival', 'Jobs in the queue', 'p50']) {
      expect(svg).toContain(text)
    }
  })

  test('shows the rate in force where it changes, and not where it is one', () => {
    const drawn = (rate: readonly Point[]) =>
      drawSimulation({
        title: 'a',
        subtitle: 'b',
        shapes: [{ label: 'c', note: 'd', series: series([[100, 1]], rate) }],
      })
    const fixed = [
      [0, 8],
      [100, 8],
    ] as const
    const closes = [
      [0, 8],
      [40, 0],
      [100, 0],
    ] as const
    expect(drawn(fixed)).not.toContain('Effective rate')
    expect(drawn(closes)).toContain('Effective rate (units per second)')
    // From its top down to its bottom, at two fifths of the width.
    expect(drawn(closes)).toMatch(/d="M76 (\d+(?:\.\d)?)L396 \1L396 (\d+)L876 \2/)
  })

  test('has colours for light and dark, and no number that is none', () => {
    expect(svg).toContain('prefers-color-scheme:dark')
    expect(svg).not.toMatch(/NaN|Infinity|undefined/)
  })
})

test.each([
  [1, ['0', '0.2', '0.4', '0.6', '0.8', '1']],
  [240, ['0', '50', '100', '150', '200']],
  [12_345, ['0', '5,000', '10,000']],
])('counts up to %d are marked at round numbers', (most, labels) => {
  expect(countMarks(most).map((mark) => mark.label)).toEqual(labels)
})

test.each([
  [0.05, ['0', '10 ms', '20 ms', '30 ms', '40 ms', '50 ms']],
  [63, ['0', '20 s', '40 s', '60 s']],
  [3600, ['0', '10 min', '20 min', '30 min', '40 min', '50 min', '60 min']],
  [86_400, ['0', '6 h', '12 h', '18 h', '24 h']],
  [864_000, ['0', '2 d', '4 d', '6 d', '8 d', '10 d']],
])('times up to %d s are marked in the unit that suits them', (most, labels) => {
  expect(timeMarks(most).map((mark) => mark.label)).toEqual(labels)
})
