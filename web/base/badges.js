import { h, setAttribute, setChildren, setText } from './dom.js'

/**
 * Shows what is out of the ordinary about a queue.
 * @param {HTMLElement} parent
 * @param {readonly import('./states.js').State[]} states
 */
export function showBadges(parent, states) {
  const badges = states.map((state, i) => {
    const badge = parent.children[i] ?? h('span', { class: 'badge' })
    setText(badge, state.label)
    setAttribute(badge, 'data-kind', state.kind)
    setAttribute(badge, 'title', state.title)
    return badge
  })
  setChildren(parent, badges)
}
