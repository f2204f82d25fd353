/**
 * A name as a segment of a path. Clients resolve `.` and `..`, however they are encoded, before they ask (WHATWG URL,
 * 4.4): a tilde in front keeps them, and names that begin with one. The page writes the same, in web/base/api.js.
 */
export function segmentOf(name: string): string {
  return encodeURIComponent(/^(~|\.{1,2}$)/.test(name) ? `~${name}` : name)
}

/** The name of a segment that is decoded already. */
export function nameIn(segment: string): string {
  return segment.startsWith('~') ? segment.slice(1) : segment
}
