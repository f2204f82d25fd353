/** Parameters of a query; several with one name are given as an array. */
export type Query = Readonly<Record<string, QueryValue | readonly QueryValue[]>>
type QueryValue = string | number | boolean

const MAX_PATH_CHARACTERS = 4096
const MAX_DECODINGS = 4

/**
 * The URL of a path below a target's base URL. It is concatenated, never resolved: no path can lead out of it.
 *
 * Problems with the path or query are added to `problems`; the URL then stays that of the target.
 */
export function urlBelow(base: URL, path: string, query: Query, problems: string[]): URL {
  const url = new URL(base)
  const problem = pathProblem(path)
  if (problem) problems.push(`path: ${problem}`)
  else if (path !== '') url.pathname = `${base.pathname.replace(/\/$/, '')}${path}`
  for (const [name, values] of Object.entries(query)) {
    for (const value of Array.isArray(values) ? values : [values]) {
      if (['string', 'number', 'boolean'].includes(typeof value)) url.searchParams.append(name, String(value))
      else problems.push('query: expected texts, numbers and booleans, or arrays of them')
    }
  }
  return url
}

function pathProblem(path: string): string | undefined {
  if (path === '') return undefined
  if (path.length > MAX_PATH_CHARACTERS) return `expected at most ${MAX_PATH_CHARACTERS} characters`
  if (!path.startsWith('/') || path.startsWith('//')) return 'expected one / at its start'
  if (/[?#]/.test(path)) return 'expected neither ? nor #: parameters go into query'
  // Servers and proxies decode a path once, twice or not at all: none of its decoded forms must lead out of the base.
  let reading = path
  for (let decodings = 0; decodings <= MAX_DECODINGS; decodings++) {
    if (/[\\\p{Cc}]/u.test(reading)) return 'expected no backslash and no control character'
    if (reading.split('/').some(leadsUp)) return 'expected no segment . or ..'
    const decoded = decodedOnce(reading)
    if (decoded === undefined) return 'expected % only before two hexadecimal digits of UTF-8'
    if (decoded === reading) return undefined
    reading = decoded
  }
  return `expected it to be percent-encoded at most ${MAX_DECODINGS} times`
}

/** Some servers remove parameters from a segment before they interpret it: they read `..;x` as `..`. */
function leadsUp(segment: string): boolean {
  return /^\.\.?(;|$)/.test(segment)
}

function decodedOnce(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
