/**
 * Reads a URL that a job brings: https, without credentials, on one of the ports. Where its host leads is for the
 * connection to check; its text says nothing of that. What is wrong is added to `problems`.
 */
export function readFreeUrl(text: string, ports: readonly number[], problems: string[]): URL | undefined {
  const url = isClean(text) && URL.canParse(text) ? new URL(text) : undefined
  if (url?.protocol !== 'https:') problems.push('url: expected an https:// URL')
  else if (url.username !== '' || url.password !== '') problems.push('url: expected no user name and no password')
  else if (!ports.includes(Number(url.port || 443))) problems.push(`url: expected port ${ports.join(', ')}`)
  else return url
  return undefined
}

/** The URL parser drops line breaks and tabs and turns backslashes around: a text with them is not what it looks like. */
function isClean(text: string): boolean {
  return !/[\s\\\p{Cc}]/u.test(text)
}
