import { duration, number, perSecond } from '../base/format.js'
import { CAUSES } from '../base/queue-text.js'

/**
 * @typedef {import('../charts/chart.js').ChartTerms} ChartTerms
 * @typedef {import('../charts/points.js').Figures} Figures
 */

/** @param {number | null | undefined} value */
const flow = (value) => perSecond(value ?? undefined)

/** The charts of a queue. */
export const QUEUE_CHARTS = /** @satisfies {readonly ChartTerms[]} */ ([
  {
    id: 'chart-flow',
    title: 'Arrivals and departures against the rate',
    format: flow,
    height: 200,
    top: 0.1,
    // The rate first: it is drawn behind the others.
    lines: [
      { label: 'Rate', color: '--c-limit-line', kind: 'dashed', values: ({ rate }) => rate },
      { label: 'Arrivals', color: '--c-arrivals', kind: 'line', values: ({ arrivals }) => arrivals },
      { label: 'Departures', color: '--c-departures', kind: 'area', values: ({ departures }) => departures },
      { label: 'Past the meter', color: '--c-refused', kind: 'line', values: pastMeter },
    ],
  },
  {
    id: 'chart-ends',
    title: 'Ends: completed and failed',
    format: flow,
    height: 160,
    top: 1,
    lines: [
      { label: 'Completed', color: '--c-departures', kind: 'line', values: ({ completed }) => completed },
      { label: 'Failed attempts', color: '--c-refused', kind: 'area', values: ({ failedAttempts }) => failedAttempts },
      { label: 'Failed permanently', color: '--c-dropped', kind: 'line', values: ({ failed }) => failed },
    ],
  },
  {
    id: 'chart-depth',
    title: 'Depth against capacity',
    format: (value) => number(value),
    height: 150,
    top: 10,
    lines: [
      { label: 'Depth', color: '--c-depth', kind: 'area', values: ({ depth }) => depth },
      {
        label: 'Capacity',
        color: '--c-limit-line',
        kind: 'dashed',
        values: capacityNear,
        now: ({ capacity }) => capacity,
      },
    ],
  },
  {
    id: 'chart-refused',
    title: 'Refusals',
    format: flow,
    height: 150,
    top: 1,
    lines: [
      { label: 'Refused', color: '--c-refused', kind: 'area', values: ({ refused }) => refused },
      { label: 'Dropped', color: '--c-dropped', kind: 'line', values: ({ dropped }) => dropped },
    ],
  },
  {
    id: 'chart-held',
    title: 'What held the next job',
    format: (value) => (value === null || value === undefined ? '–' : `${Math.round(value * 100)}%`),
    height: 150,
    most: 1,
    lines: CAUSES.map(({ label, color }, i) => ({
      label,
      color,
      kind: /** @type {const} */ ('stacked'),
      values: (/** @type {Figures} */ { held }) => held[i] ?? [],
    })),
  },
  {
    id: 'chart-lateness',
    title: 'Lateness of starts',
    format: (value) => duration(value),
    height: 150,
    top: 1,
    lines: [
      { label: 'Longest', color: '--c-late-max', kind: 'line', values: ({ latenessMax }) => latenessMax },
      { label: 'Mean', color: '--c-late-mean', kind: 'area', values: ({ latenessMean }) => latenessMean },
    ],
  },
])

/**
 * Nothing is drawn where all jobs pass the meter.
 * @param {Figures} figures
 */
function pastMeter({ bypassed }) {
  return bypassed.map((value) => value || null)
}

/**
 * The current capacity, unless the depth is so far below it that the curve would look flat.
 * @param {Figures} figures
 * @param {import('../wire.d.ts').Queue} queue
 */
function capacityNear({ depth }, { capacity }) {
  const most = Math.max(0, ...depth.map((value) => value ?? 0))
  const shown = capacity !== undefined && most > capacity / 4 ? capacity : null
  return depth.map(() => shown)
}
