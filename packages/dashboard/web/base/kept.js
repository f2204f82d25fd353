/** Settings stored in this browser. Where it has no storage, they are lost with the page. */

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
    // The setting holds for this page only.
  }
}
