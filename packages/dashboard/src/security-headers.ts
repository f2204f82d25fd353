const POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; object-src 'none'; frame-ancestors 'none'"

/**
 * Headers of every response: nothing is loaded from other origins, no site may frame the page, and of inline scripts and
 * styles only those of the page are let in, by their hashes. (W3C Content Security Policy Level 3; OWASP HTTP Headers
 * Cheat Sheet)
 */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy': POLICY,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
}

/** The policy with further directives. */
export function withPolicy(directives: string): Readonly<Record<string, string>> {
  return { 'content-security-policy': `${POLICY}; ${directives}` }
}
