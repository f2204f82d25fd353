import { h, setAttribute, setChildren, setText } from './dom.js'

/** @typedef {import('../wire.d.ts').Queue['conditions']} Conditions */

/**
 * The colours of badges that are not red.
 * @type {Partial<Record<Conditions[number]['name'], string>>}
 */
const KINDS = {
  'Groups held': 'paused',
  Paused: 'paused',
  'At concurrency': 'feedback',
  Feedback: 'feedback',
  Override: 'override',
  Shadow: 'shadow',
  Off: 'shadow',
}

/**
 * Shows what is out of the ordinary about a queue.
 * @param {HTMLElement} parent
 * @param {Conditions} conditions
 */
export function showBadges(parent, conditions) {
  const badges = conditions.map(({ name, text, next }, i) => {
    const badge = parent.children[i] ?? h('span', { class: 'badge' })
    setText(badge, name)
    setAttribute(badge, 'data-kind', KINDS[name] ?? 'full')
    setAttribute(badge, 'title', next === '' ? text : `${text}. Next: ${next}`)
    return badge
  })
  setChildren(parent, badges)
}

/**
 * @param {Conditions} conditions
 * @returns {number} greater where a look is needed sooner; 0 where all is as usual
 */
export function urgencyOf(conditions) {
  return conditions.reduce((sum, { weight }) => sum + weight, 0)
}
