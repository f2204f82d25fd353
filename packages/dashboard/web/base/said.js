import { byId, setText } from './dom.js'

const SHOWN_MS = 6000
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer

/**
 * Shows a message once, also to screen readers: only for the user's own actions, and for a lost connection.
 * @param {string} text
 */
export function say(text) {
  const element = byId('said')
  setText(element, text)
  element.classList.add('shown')
  clearTimeout(timer)
  timer = setTimeout(() => element.classList.remove('shown'), SHOWN_MS)
}
