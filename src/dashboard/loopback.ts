/** Whether an address is this machine's own. */
export function isLoopbackAddress(address: string | undefined): boolean {
  return address !== undefined && (/^(::ffff:)?127\./i.test(address) || address === '::1')
}

/**
 * Whether a host, as a request names it, is this machine by its own name. A name of somebody else's that leads here is
 * not: a page of his would be of the same origin as the dashboard. (DNS rebinding)
 */
export function isLoopbackHost(host: string | undefined): boolean {
  if (host === undefined || !URL.canParse(`http://${host}`)) return false
  const { hostname, pathname } = new URL(`http://${host}`)
  if (pathname !== '/') return false
  return /^(.+\.)?localhost$/.test(hostname) || /^127(\.\d+){3}$/.test(hostname) || hostname === '[::1]'
}
