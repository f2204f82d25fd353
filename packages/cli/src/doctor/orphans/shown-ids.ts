const SHOWN = 5

/** The first few of a list, and how many there are. */
export function shownIds(ids: readonly string[]): string {
  const more = ids.length > SHOWN ? `, … (${ids.length} in all)` : ''
  return ids.slice(0, SHOWN).join(', ') + more
}
