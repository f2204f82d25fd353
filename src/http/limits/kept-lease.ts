import type { Lease } from '../../limits/lease.ts'
import { MAX_TIMER_MS } from '../../max-timer.ts'

/** So that a lease outlives two extensions that failed. */
const PARTS = 3

/**
 * Extends a lease until it is let go. It keeps no process alive. Where Redis is away it is tried again, and what can not
 * be given back runs out by itself.
 * @returns lets it go
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
