/** What this browser keeps of what was chosen. A browser that keeps nothing forgets it with the page. */

/** @param {string} name */
export function kept(name) {
  try {
    return localStorage.getItem(`sluice.${name}`) ?? undefined
  } catch {
    return undefined
  }
}

/**
 * @param {string} name
 * @param {string | undefined} value undefined forgets it
 */
export function keep(name, value) {
  try {
    if (value === undefined) localStorage.removeItem(`sluice.${name}`)
    else localStorage.setItem(`sluice.${name}`, value)
  } catch {
    // It holds for this page.
  }
}
