import { byId } from './dom.js'
import { keep, kept } from './kept.js'

/** @type {Set<() => void>} */
const listeners = new Set()
const probe = document.createElement('span')

/** Initializes the colour theme switch. */
export function startTheme() {
  const select = /** @type {HTMLSelectElement} */ (byId('theme'))
  select.value = kept('theme') ?? 'system'
  select.addEventListener('change', () => {
    const { value } = select
    if (value === 'system') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = value
    keep('theme', value === 'system' ? undefined : value)
    notify()
  })
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', notify)
}

/**
 * @param {() => void} listener called when colours have changed
 * @returns {() => void} removes it
 */
export function onTheme(listener) {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/**
 * @param {string} variable a colour of base.css
 * @returns {string} its current value, in the form that a canvas takes
 */
export function colorOf(variable) {
  const known = colors.get(variable)
  if (known !== undefined) return known
  if (!probe.isConnected) {
    probe.hidden = true
    document.body.append(probe)
  }
  probe.style.color = `var(${variable})`
  const color = getComputedStyle(probe).color
  colors.set(variable, color)
  return color
}
/** @type {Map<string, string>} */
const colors = new Map()

function notify() {
  colors.clear()
  for (const listener of listeners) listener()
}
