/** The path of a URL as it came. Its query may hold what is not to be told again. */
export function pathOf(url: string): string {
  return url.split('?', 1)[0] as string
}
