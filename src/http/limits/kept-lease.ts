import type { Lease } from '../../limits/lease.ts'
import { MAX_TIMER_MS } from '../../max-timer.ts'

/** Lets a lease outlive two failed extensions. */
const PARTS = 3

/**
 * Extends a lease until it is released. It does not keep the process alive. While Redis is unavailable, extensions are
 * retried, and a lease that can not be released expires.
 * @returns releases it
 */
export function keepLease(lease: Lease): () => void {
  const extend = () => {
    lease.extend().then(
      (isKept) => {
        if (!isKept) clearInterval(timer)
      },
      () => {},
    )
  }
  const timer = setInterval(extend, Math.min(lease.leaseMs / PARTS, MAX_TIMER_MS)).unref()
  return () => {
    clearInterval(timer)
    lease.release().catch(() => {})
  }
}
