/** The path of a URL as received, without the query, which may hold what must not be repeated. */
export function pathOf(url: string): string {
  const query = url.indexOf('?')
  return query === -1 ? url : url.slice(0, query)
}
