/** Fields that are lists: the values of all middleware are joined. For any other field the last value wins. */
const LISTS: ReadonlySet<string> = new Set(['ratelimit', 'ratelimit-policy', 'vary', 'server-timing', 'link'])

/** @param name in lower case */
export function isList(name: string): boolean {
  return LISTS.has(name)
}

/** Joins an earlier value of a field with a new one. @param name in lower case */
export function joined(name: string, before: string | undefined, now: string): string {
  return before !== undefined && isList(name) ? `${before}, ${now}` : now
}

/** Merges header fields; list fields are joined. */
export function withHeaders(
  before: Readonly<Record<string, string>> | undefined,
  now: Readonly<Record<string, string>> | undefined,
): Readonly<Record<string, string>> | undefined {
  if (!before || !now) return before ?? now
  const both: Record<string, string> = { ...before }
  for (const [name, value] of Object.entries(now)) both[name] = joined(name, both[name], value)
  return both
}
