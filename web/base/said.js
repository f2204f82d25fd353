import { byId, setText } from './dom.js'

const SHOWN_MS = 6000
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer

/**
 * Says something once, to readers of the screen too: only what people did, and the loss of the connection.
 * @param {string} text
 */
export function say(text) {
  const element = byId('said')
  setText(element, text)
  element.classList.add('shown')
  clearTimeout(timer)
  timer = setTimeout(() => element.classList.remove('shown'), SHOWN_MS)
}
