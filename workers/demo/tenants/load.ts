/** A tenant of the demonstration, and when its mails are added. */
export interface Tenant {
  readonly name: string
  /** ms after the start, ascending. */
  readonly addedAtMs: readonly number[]
}

/** The tenant of rank k sends mails in proportion to k ^ -1.5: the first has about a third of all. */
const SKEW = 1.5
/** A tenant with a larger part of all mails adds them at once, as a campaign does; the others over the first half. */
const CAMPAIGN_SHARE = 0.05

/**
 * The load: as many mails as leave at the rate within the time.
 * @param tenants how many
 * @param total mails of all
 * @param forMs how long all of them take to leave
 */
export function tenantsOf(tenants: number, total: number, forMs: number): Tenant[] {
  const weights = Array.from({ length: tenants }, (_, i) => (i + 1) ** -SKEW)
  const sum = weights.reduce((all, weight) => all + weight, 0)
  return weights.map((weight, i) => {
    const mails = Math.max(1, Math.round((total * weight) / sum))
    const apartMs = mails > total * CAMPAIGN_SHARE ? 0 : forMs / 2 / mails
    // Not all at the same moment.
    const firstMs = apartMs === 0 ? 0 : (apartMs * i) / tenants
    return {
      name: `tenant-${String(i + 1).padStart(2, '0')}`,
      addedAtMs: Array.from({ length: mails }, (_, n) => Math.round(firstMs + n * apartMs)),
    }
  })
}
