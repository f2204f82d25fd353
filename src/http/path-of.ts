/** The path of a URL as it came. Its query may hold what is not to be told again. */
export function pathOf(url: string): string {
  const query = url.indexOf('?')
  return query === -1 ? url : url.slice(0, query)
}
