import { h, s, setAttribute, setText } from '../base/dom.js'
import { count, number, perSecond, plural } from '../base/format.js'
import { keep, kept } from '../base/kept.js'
import { Drops } from './drops.js'

const TOP = 84
const BOTTOM = 248
/** For a queue without a capacity, the depth at which the bucket looks full. */
const SEEMS_FULL = 100_000
const RING = 2 * Math.PI * 15

/** A wave with a period of 80, wide enough to move by one period. */
const WAVE = `M-40 0${'q20 -7 40 0t40 0'.repeat(4)}V200H-40Z`

/** The queue as a bucket: jobs drip in, leave through the hole at the rate, and are refused when it is full. */
export class Bucket {
  #water = s('g', { class: 'water' }, s('path', { class: 'wave back', d: WAVE }), s('path', { class: 'wave', d: WAVE }))
  #depth = s('text', { x: 130, y: 168, class: 'bucket-depth' })
  #capacity = s('text', { x: 130, y: 188, class: 'bucket-capacity' })
  #ring = s('circle', { cx: 130, cy: 262, r: 15, class: 'ring-used', 'stroke-dasharray': `0 ${RING}` })
  #burst = s('text', { x: 160, y: 276, class: 'bucket-burst' })
  #drops = {
    in: new Drops('drop-in', 130, 22),
    out: new Drops('drop-out', 130, 282),
    refused: new Drops('drop-over', 214, 80),
  }
  #svg = this.#draw()
  #still = h('button', { type: 'button', class: 'quiet small', onclick: () => this.#setStill(!this.#isStill) })
  #isStill = false
  element = h('section', { class: 'card bucket', 'aria-label': 'Bucket' }, this.#svg, this.#still)

  constructor() {
    this.#setStill(kept('still') === 'true')
  }

  /**
   * @param {import('../wire.d.ts').Queue} queue
   * @param {import('../base/flow.js').PerSecond | undefined} flow
   */
  show(queue, flow) {
    const { depth, capacity, shape, level } = queue
    const burst = shape?.burst ?? 1
    this.#water.style.transform = `translateY(${(BOTTOM - (BOTTOM - TOP) * partOf(depth, capacity)).toFixed(1)}px)`
    const surface = BOTTOM - (BOTTOM - TOP) * partOf(depth, capacity)
    this.#drops.in.show(flow?.arrivals ?? 0, surface - 22)
    this.#drops.out.show(flow?.departures ?? 0, 34)
    this.#drops.refused.show(flow?.refusals ?? 0, 90)
    setText(this.#depth, count(depth))
    const over = capacity !== undefined && depth > capacity ? `, ${count(depth - capacity)} over` : ''
    setText(this.#capacity, capacity === undefined ? 'no capacity set' : `of ${count(capacity)}${over}`)
    const isPaced = queue.rate !== undefined
    setText(
      this.#burst,
      isPaced ? `burst ${number(Math.round(Math.min(level, burst) * 10) / 10)} of ${count(burst)}` : '',
    )
    const used = isPaced ? RING * Math.min(1, Math.max(0, level / burst)) : 0
    setAttribute(this.#ring, 'stroke-dasharray', `${used.toFixed(1)} ${RING.toFixed(1)}`)
    setAttribute(this.#svg, 'aria-label', this.#summary(queue, flow))
    this.element.classList.toggle('is-full', capacity !== undefined && depth >= capacity)
  }

  /**
   * @param {import('../wire.d.ts').Queue} queue
   * @param {import('../base/flow.js').PerSecond | undefined} flow
   */
  #summary({ depth, capacity, level, shape }, flow) {
    const of = capacity === undefined ? '' : `, of at most ${count(capacity)}`
    const flows = flow
      ? ` ${perSecond(flow.arrivals)} arrive, ${perSecond(flow.departures)} leave, ${perSecond(flow.refusals)} are refused.`
      : ''
    return `${plural(depth, 'job')} waiting${of}.${flows} The burst is used up to ${number(level)} of ${count(shape?.burst ?? 1)}.`
  }

  #draw() {
    const body = 'M52 80L72 240a12 12 0 0 0 12 10h92a12 12 0 0 0 12-10L208 80Z'
    const clip = s('clipPath', { id: 'bucket-inside' }, s('path', { d: body }))
    return s(
      'svg',
      { viewBox: '-15 0 290 326', role: 'img', 'aria-label': 'Bucket' },
      s('defs', {}, clip),
      this.#drops.in.element,
      s('g', { 'clip-path': 'url(#bucket-inside)' }, s('path', { class: 'bucket-inside', d: body }), this.#water),
      s('path', { class: 'bucket-wall', d: 'M48 80L68 241a16 16 0 0 0 16 13h92a16 16 0 0 0 16-13L212 80' }),
      s('path', { class: 'bucket-rim', d: 'M42 80H218' }),
      this.#drops.refused.element,
      this.#drops.out.element,
      s('circle', { cx: 130, cy: 262, r: 15, class: 'ring' }),
      this.#ring,
      s('circle', { cx: 130, cy: 262, r: 5, class: 'hole' }),
      ...[this.#depth, this.#capacity, this.#burst],
    )
  }

  /** @param {boolean} isStill */
  #setStill(isStill) {
    this.#isStill = isStill
    keep('still', isStill ? 'true' : undefined)
    this.element.classList.toggle('is-still', isStill)
    setText(this.#still, isStill ? 'Move' : 'Hold still')
  }
}

/**
 * @param {number} depth
 * @param {number | undefined} capacity if undefined, the scale is logarithmic
 */
function partOf(depth, capacity) {
  if (capacity !== undefined) return Math.min(1, depth / capacity)
  return Math.min(0.92, Math.log10(1 + depth) / Math.log10(SEEMS_FULL))
}
