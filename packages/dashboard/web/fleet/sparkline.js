import { s, setAttribute } from '../base/dom.js'
import { unitsPerSecond } from '../base/format.js'

const WIDTH = 240
const HEIGHT = 36
const SPAN_MS = 300_000
const STEP_MS = 2000
/** Each point is the mean over this time, as the numbers beside it are. */
const WINDOW_MS = 10_000

/** Departures per second over the last five minutes, with starts past the meter, against the rate: both from 0, without axes. */
export class Sparkline {
  /** @type {Record<'line' | 'area' | 'rate', SVGPathElement> | undefined} */
  #paths
  /** The rate in jobs a second, undefined where jobs are not paced. @type {{ atMs: number, departed: number, rate: number | undefined }[]} oldest first */
  #points = []
  #meanCost = 1

  /** Creates the drawing; until then, only points are kept. */
  element() {
    const [area, rate, line] = [
      s('path', { class: 'spark-area' }),
      s('path', { class: 'spark-rate' }),
      s('path', { class: 'spark-line' }),
    ]
    this.#paths = { line, area, rate }
    this.#draw()
    return s(
      'svg',
      { class: 'spark', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      ...[area, rate, line],
    )
  }

  /** @param {readonly import('../wire.d.ts').Point[]} samples from before the page was opened */
  seed(samples) {
    const older = samples.map(({ at, departed, bypassed, ratePerSecond }) => {
      return { atMs: Date.parse(at), departed: departed + bypassed, rate: this.#jobs(ratePerSecond) }
    })
    const lastMs = older.at(-1)?.atMs ?? 0
    this.#points = [...older, ...this.#points.filter(({ atMs }) => atMs > lastMs)]
    this.#draw()
  }

  /** @param {import('../wire.d.ts').Queue} queue */
  push(queue) {
    // Without a part that could not be read, the total would seem to fall, and to rise at once when it is back.
    if (queue.unread) return
    const atMs = Date.parse(queue.at)
    if (atMs - (this.#points.at(-1)?.atMs ?? 0) < STEP_MS) return
    this.#meanCost = queue.meanCost
    const departed = queue.departedTotal + queue.bypassedTotal
    this.#points.push({ atMs, departed, rate: this.#jobs(unitsPerSecond(queue.rate)) })
    while ((this.#points[1]?.atMs ?? atMs) < atMs - SPAN_MS) this.#points.shift()
    this.#draw()
  }

  /** @param {number | undefined} units a second */
  #jobs(units) {
    return units === undefined || this.#meanCost <= 0 ? undefined : units / this.#meanCost
  }

  #draw() {
    const paths = this.#paths
    if (!paths) return
    const points = this.#points
    const flows = points.slice(1).map((point, i) => ({ ...point, perSecond: flowAt(points, i + 1) }))
    const last = flows.at(-1)
    if (!last || flows.length < 2) return
    const top = Math.max(...flows.map(({ perSecond, rate = 0 }) => Math.max(perSecond, rate)), 1e-9) * 1.1
    const x = (/** @type {number} */ atMs) => (WIDTH * (1 - (last.atMs - atMs) / SPAN_MS)).toFixed(1)
    const y = (/** @type {number} */ value) => (HEIGHT - 1 - (HEIGHT - 2) * (value / top)).toFixed(1)
    const line = `M${flows.map(({ atMs, perSecond }) => `${x(atMs)},${y(perSecond)}`).join('L')}`
    setAttribute(paths.line, 'd', line)
    setAttribute(paths.area, 'd', `${line}V${HEIGHT}H${x(flows[0]?.atMs ?? 0)}Z`)
    const rates = flows.map(({ atMs, rate }, i) => {
      const isFirst = flows[i - 1]?.rate === undefined
      return rate === undefined ? '' : `${isFirst ? 'M' : 'L'}${x(atMs)},${y(rate)}`
    })
    setAttribute(paths.rate, 'd', rates.join(''))
  }
}

/**
 * @param {readonly { atMs: number, departed: number }[]} points
 * @param {number} i
 */
function flowAt(points, i) {
  const point = points[i]
  let from = points[i - 1]
  for (let j = i - 2; point && from && point.atMs - from.atMs < WINDOW_MS && points[j]; j -= 1) {
    // A queue that was made anew.
    if (/** @type {{ departed: number }} */ (points[j]).departed > from.departed) break
    from = points[j]
  }
  if (!point || !from) return 0
  return Math.max(0, ((point.departed - from.departed) * 1000) / Math.max(1, point.atMs - from.atMs))
}
