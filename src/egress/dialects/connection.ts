import type { Feedback, Pause } from '../../feedback/feedback.ts'
import type { OtherAnswer } from '../answer.ts'
import { type Because, pauseUnknown } from './said.ts'

/** Codes of Node, its resolver and undici: no connection came about, so nothing was sent. */
const UNREACHABLE = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL', 'EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN'],
  ...['UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_PRX_TLS'],
])
/** OpenSSL's and Node's codes of a handshake that failed (`X509_V_ERR_…` without its prefix). */
const HANDSHAKE =
  /^(?:EPROTO$|ERR_SSL_|ERR_TLS_|CERT_|CRL_|UNABLE_TO_|DEPTH_ZERO_SELF_SIGNED_CERT$|SELF_SIGNED_CERT_IN_CHAIN$|HOSTNAME_MISMATCH$)/
/** Node's texts of a connection, or a handshake on it, that did not come about. */
const NOT_CONNECTED = /\bconnect ETIMEDOUT\b|\bbefore secure TLS connection was established/
/** A connection broke that was there: what was under way may have had its effect. */
const BROKEN = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET', 'PROTOCOL_CONNECTION_LOST'])

/** What an error's code says of the connection. */
export function connectionFailure({ code, text }: Pick<OtherAnswer, 'code' | 'text'>): 'none' | 'broken' | undefined {
  if (UNREACHABLE.has(code) || HANDSHAKE.test(code) || NOT_CONNECTED.test(text)) return 'none'
  return BROKEN.has(code) ? 'broken' : undefined
}

/** The destination can not be reached: nothing leaves for it, and one job probes whether it is back. */
export function unreachable(because: Because): Pause {
  return { ...pauseUnknown(because, true), about: 'destination' }
}

/** A connection broke: one may be the job's fault, several are the destination's. */
export function broken(because: Because): Pause {
  return { ...pauseUnknown(because, true), mayBeDone: true }
}

/** What an error of no protocol says: only whether there was a connection. */
export function feedbackOfConnection(answer: OtherAnswer): readonly Feedback[] {
  const failure = connectionFailure(answer)
  if (failure === undefined) return []
  if (failure === 'none') return [unreachable({ reason: `no connection (${answer.code})`, source: 'error' })]
  return [broken({ reason: `connection broken (${answer.code})`, source: 'error' })]
}
