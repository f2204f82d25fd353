import { kindOf, whatOf, writerOf } from '../base/change-text.js'
import { h, setAttribute, setChildren } from '../base/dom.js'
import { time } from '../base/format.js'
import { colorOf } from '../base/theme.js'
import { faint } from './plot-options.js'

/**
 * @typedef {import('../wire.d.ts').Change} Change
 * @typedef {import('uplot')} Plot
 */

/** Marks closer to each other than this are merged. px */
const NEAR = 14

/** Changes on the time axis: lines in every chart, and buttons with a description in charts that show them. */
export class Marks {
  /** @type {readonly Change[]} newest first */
  #changes = []
  /** @type {[number, number][]} */
  #paused = []

  /**
   * @param {readonly Change[]} changes newest first
   * @param {[number, number][]} paused from and to, seconds since 1970
   */
  set(changes, paused) {
    this.#changes = changes
    this.#paused = paused
  }

  /** @returns {import('uplot').Plugin} draws pauses behind the lines, and changes over them */
  plugin() {
    return {
      hooks: {
        drawClear: (plot) => this.#drawPauses(plot),
        draw: (plot) => {
          for (const { change, x } of this.#seen(plot)) drawLine(plot, x * devicePixelRatio, colorOfChange(change))
        },
      },
    }
  }

  /** @returns {import('uplot').Plugin} puts a button at each change */
  buttons() {
    /** @type {Map<string, HTMLButtonElement>} */
    const made = new Map()
    const layer = h('div', { class: 'marks' })
    return {
      hooks: {
        ready: (plot) => plot.root.closest('.drawing')?.append(layer),
        draw: (plot) => {
          layer.style.left = `${plot.over.offsetLeft}px`
          const groups = grouped(this.#seen(plot))
          const buttons = groups.map((group) => buttonOf(group, made, plot.over.clientWidth))
          for (const [id, button] of made) if (!buttons.includes(button)) made.delete(id)
          setChildren(layer, buttons)
        },
      },
    }
  }

  /** @param {Plot} plot */
  #seen(plot) {
    const { min = 0, max = 0 } = plot.scales.x ?? {}
    return this.#changes.flatMap((change) => {
      const at = Date.parse(change.at) / 1000
      return at < min || at > max ? [] : [{ change, x: plot.valToPos(at, 'x') }]
    })
  }

  /** @param {Plot} plot */
  #drawPauses(plot) {
    const { ctx, bbox } = plot
    const { min = 0, max = 0 } = plot.scales.x ?? {}
    ctx.fillStyle = faint(colorOf('--c-pause'), 0.18)
    for (const [from, to] of this.#paused) {
      if (to < min || from > max) continue
      const left = plot.valToPos(Math.max(from, min), 'x', true)
      ctx.fillRect(left, bbox.top, plot.valToPos(Math.min(to, max), 'x', true) - left, bbox.height)
    }
  }
}

/** @param {Change} change */
function colorOfChange({ kind }) {
  if (kind === 'feedback') return colorOf('--c-feedback')
  return colorOf(kind === 'pause' || kind === 'resume' ? '--c-pause-line' : '--c-override')
}

/**
 * @param {Plot} plot
 * @param {number} x canvas pixels from the left of the drawing
 * @param {string} color
 */
function drawLine({ ctx, bbox }, x, color) {
  ctx.save()
  ctx.strokeStyle = color
  ctx.lineWidth = devicePixelRatio
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio])
  ctx.beginPath()
  ctx.moveTo(bbox.left + x, bbox.top)
  ctx.lineTo(bbox.left + x, bbox.top + bbox.height)
  ctx.stroke()
  ctx.restore()
}

/**
 * @param {{ change: Change, x: number }[]} seen newest first
 * @returns {{ changes: Change[], x: number }[]} oldest first
 */
function grouped(seen) {
  /** @type {{ changes: Change[], x: number }[]} */
  const groups = []
  for (const { change, x } of seen.toReversed()) {
    const last = groups.at(-1)
    if (last && x - last.x < NEAR) last.changes.push(change)
    else groups.push({ changes: [change], x })
  }
  return groups
}

/**
 * @param {{ changes: Change[], x: number }} group
 * @param {Map<string, HTMLButtonElement>} made
 * @param {number} width px
 */
function buttonOf({ changes, x }, made, width) {
  const first = /** @type {Change} */ (changes[0])
  const key = `${first.id} ${changes.length}`
  const button = made.get(key) ?? newButton(changes, first)
  made.set(key, button)
  button.style.left = `${x}px`
  setAttribute(button, 'data-side', x > width / 2 ? 'left' : 'right')
  return button
}

/**
 * @param {Change[]} changes
 * @param {Change} first
 */
function newButton(changes, first) {
  const lines = changes.map((change) => ({ head: `${time(change.at)} ${kindOf(change)}`, words: textOf(change) }))
  const kind = changes.every((change) => change.kind === first.kind) ? first.kind : 'override'
  const texts = lines.map(({ head, words }) => `${head}: ${words}`).join('; ')
  // Begins with the number that is seen: people who control the page by voice say that.
  const label = changes.length > 1 ? `${changes.length} changes: ${texts}` : texts
  return h(
    'button',
    { type: 'button', class: 'mark', 'data-kind': kind, 'aria-label': label },
    h('span', { 'aria-hidden': 'true' }, changes.length > 1 ? changes.length : ''),
    h(
      'span',
      { class: 'tip', 'aria-hidden': 'true' },
      ...lines.map(({ head, words }) => h('span', { class: 'tip-line' }, h('b', {}, head), words)),
    ),
  )
}

/** @param {Change} change */
function textOf(change) {
  const { reason } = change
  const by = writerOf(change)
  return [whatOf(change), reason && `“${reason}”`, by && `by ${by}`].filter(Boolean).join(' · ')
}
