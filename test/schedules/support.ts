import type { RateSchedule } from '../../src/index.ts'

const HOUR_MS = 3_600_000
export const zone = 'Asia/Kolkata'

/** Closed from an hour ago to some hours from now, on the clock of the zone. */
export function closedFor(hours: number): { rate: RateSchedule; opensAt: Date } {
  const now = Date.now()
  const opensAt = new Date(Math.ceil((now + hours * HOUR_MS) / 60_000) * 60_000)
  const clock = (at: Date) => at.toLocaleTimeString('en-GB', { timeZone: zone, hour: '2-digit', minute: '2-digit' })
  const [from, to] = [clock(new Date(now - HOUR_MS)), clock(opensAt)]
  // Over midnight, these are two entries.
  const late =
    to === '00:00'
      ? [{ from, rate: 0 as const }]
      : [
          { from, rate: 0 as const },
          { to, rate: 0 as const },
        ]
  const closed = from < to ? [{ from, to, rate: 0 as const }] : late
  return { rate: { schedule: [...closed, { rate: '50/s' }], timeZone: zone }, opensAt }
}
