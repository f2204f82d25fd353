import { pauseMs } from '../dialects/build-feedback.ts'
import { feedbackOfStatus } from '../dialects/http.ts'
import { readHttpSignals } from '../signals/http-signals.ts'
import { shapelessProfile } from './profile.ts'

/** A client over the limit is refused for the next 5 minutes: developers.cloudflare.com, API limits. */
const BLOCK_MS = 300_000

/** Cloudflare's own API: the standard fields and, if they are missing, the 5 minutes of its documentation. */
export const cloudflare = shapelessProfile('cloudflare', (answer) => {
  const found = feedbackOfStatus(answer, readHttpSignals(answer))
  return found.map((one) =>
    one.kind === 'pause' && one.forMs === undefined
      ? pauseMs(BLOCK_MS, { ...one, reason: `${one.reason} blocked` })
      : one,
  )
})
