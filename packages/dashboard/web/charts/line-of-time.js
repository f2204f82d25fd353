import { unitsPerSecond } from '../base/format.js'
import { figuresOf, pointOf } from './points.js'

/** @typedef {import('../wire.d.ts').Point} Point */

/** The selectable ranges, each with the interval of the samples that Redis keeps for it. */
export const RANGES = /** @type {const} */ ([
  { name: '10m', label: '10 min', spanMs: 600_000, stepMs: 2000 },
  { name: '2h', label: '2 h', spanMs: 7_200_000, stepMs: 15_000 },
  { name: '24h', label: '24 h', spanMs: 86_400_000, stepMs: 120_000 },
])

/** The points of one range: first those that Redis keeps, then those from events. */
export class LineOfTime {
  #spanMs
  #stepMs
  /** @type {Point[]} oldest first */
  #points = []
  /** The newest point; it is added once it is a full step after the previous one. @type {Point | undefined} */
  #tip

  /** @param {(typeof RANGES)[number]} range */
  constructor({ spanMs, stepMs }) {
    this.#spanMs = spanMs
    this.#stepMs = stepMs
  }

  /** @param {readonly Point[]} samples oldest first */
  fill(samples) {
    const lastMs = Date.parse(samples.at(-1)?.at ?? '') || 0
    this.#points = [...samples, ...this.#points.filter(({ at }) => Date.parse(at) > lastMs)]
  }

  /** @param {import('../wire.d.ts').Queue} queue */
  push(queue) {
    // Without a part that could not be read, the totals would seem to fall, and to rise at once when it is back.
    if (queue.unread) return
    const point = pointOf(queue, unitsPerSecond(queue.rate))
    const atMs = Date.parse(point.at)
    this.#tip = point
    const last = this.#points.at(-1)
    // A tenth less, since events arrive with some jitter.
    if (last && atMs - Date.parse(last.at) < this.#stepMs * 0.9) return
    this.#points.push(point)
    while (Date.parse(this.#points[1]?.at ?? point.at) < atMs - this.#spanMs) this.#points.shift()
  }

  /** @returns {{ figures: import('./points.js').Figures, from: number, to: number }} times in seconds since 1970 */
  figures() {
    const tipMs = Date.parse(this.#tip?.at ?? this.#points.at(-1)?.at ?? new Date().toISOString())
    const lastMs = Date.parse(this.#points.at(-1)?.at ?? '') || 0
    const isApart = this.#tip && tipMs - lastMs >= this.#stepMs / 2
    const points = this.#tip && isApart ? [...this.#points, this.#tip] : this.#points
    const figures = figuresOf(points, this.#stepMs)
    return { figures, from: (tipMs - this.#spanMs) / 1000, to: tipMs / 1000 }
  }
}
