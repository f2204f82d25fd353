/**
 * Headers of every answer: nothing is loaded from other origins, no site may frame the page, and the page has no inline
 * script or style. (W3C Content Security Policy Level 3; OWASP HTTP Headers Cheat Sheet)
 */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'self'; base-uri 'none'; form-action 'self'; object-src 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
}
