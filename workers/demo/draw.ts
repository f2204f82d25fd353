/** Drawing for the live screen, as pure functions from numbers to text. */

/** What is known about one queue at one moment. */
export interface QueueProgress {
  title: string
  /** Lines of the input for this queue. */
  lines: number
  /** Accepted by the queue so far. */
  accepted: number
  /** How often a producer was refused. */
  refused: number
  /** Waiting jobs, and how many may wait; without a capacity nothing is refused. */
  depth: number
  capacity: number | undefined
  /** Attempts that arrived at the receiver. */
  arrived: number
  /** Departures in each half second, the latest last. */
  halfSeconds: readonly number[]
  ratePerSecond: number
}

const blocks = ' ▏▎▍▌▋▊▉█'
const heights = '▁▂▃▄▅▆▇█'

/** A bar of `width` characters, exact to an eighth of one. */
export function bar(done: number, total: number, width: number): string {
  const share = total > 0 ? Math.min(1, Math.max(0, done / total)) : 0
  const eighths = Math.round(share * width * 8)
  const whole = '█'.repeat(Math.floor(eighths / 8))
  const part = eighths % 8 === 0 ? '' : blocks[eighths % 8]
  return (whole + part).padEnd(width, '·')
}

/** One character per value: a blank for 0, the highest block for `top` and everything above it. */
export function sparkline(values: readonly number[], top: number): string {
  return values
    .map((value) => {
      if (value <= 0) return ' '
      const step = Math.ceil((value / top) * heights.length)
      return heights[Math.min(heights.length, step) - 1]
    })
    .join('')
}

/** Departures per second over the last second. */
function perSecondNow(halfSeconds: readonly number[]): number {
  return halfSeconds.slice(-2).reduce((sum, count) => sum + count, 0)
}

const depthText = ({ depth, capacity }: QueueProgress): string => `depth ${depth}${capacity ? ` of ${capacity}` : ''}`

/** Four lines for one queue, none wider than `columns`. */
export function panel(progress: QueueProgress, columns: number): string[] {
  const { title, lines, accepted, refused, arrived, halfSeconds, ratePerSecond } = progress
  const width = Math.max(10, Math.min(50, columns - 32))
  const row = (label: string, done: number): string =>
    `  ${label.padEnd(9)} ${bar(done, lines, width)} ${done} of ${lines}`
  // The rate is at half the height, so that a burst above it is visible.
  const plot = sparkline(halfSeconds.slice(-width), ratePerSecond)
  return [
    `${title}: refused ${refused}, ${depthText(progress)}`,
    row('accepted', accepted),
    row('arrived', arrived),
    `  ${'departed'.padEnd(9)} ${plot.padStart(width)} ${perSecondNow(halfSeconds)}/s`,
  ].map((line) => line.slice(0, columns))
}

/** The main figures of one queue, on part of a line. */
export function plainText(progress: QueueProgress): string {
  const { title, lines, accepted, refused, arrived, halfSeconds } = progress
  return `${title}: accepted ${accepted}, refused ${refused}, ${depthText(progress)}, departing ${perSecondNow(halfSeconds)}/s, arrived ${arrived} of ${lines}`
}
