import type { Feedback, Pause } from '../../feedback/feedback.ts'
import type { OtherAnswer } from '../answer.ts'
import { type Because, pauseUnknown } from './build-feedback.ts'

/** Codes of Node, its resolver and undici: no connection was established, so nothing was sent. */
const UNREACHABLE = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL', 'EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN'],
  ...['UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_PRX_TLS'],
])
/** OpenSSL's and Node's codes for a failed handshake (`X509_V_ERR_…` without its prefix). */
const HANDSHAKE =
  /^(?:EPROTO$|ERR_SSL_|ERR_TLS_|CERT_|CRL_|UNABLE_TO_|DEPTH_ZERO_SELF_SIGNED_CERT$|SELF_SIGNED_CERT_IN_CHAIN$|HOSTNAME_MISMATCH$)/
/** Node's messages about a connection, or a handshake on it, that was not established. */
const NOT_CONNECTED = /\bconnect ETIMEDOUT\b|\bbefore secure TLS connection was established/
/** An established connection broke: the request may have taken effect. */
const BROKEN = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET', 'PROTOCOL_CONNECTION_LOST'])

/** The state of the connection, from an error's code and message. */
export function connectionFailure({ code, text }: Pick<OtherAnswer, 'code' | 'text'>): 'none' | 'broken' | undefined {
  if (UNREACHABLE.has(code) || HANDSHAKE.test(code) || NOT_CONNECTED.test(text)) return 'none'
  return BROKEN.has(code) ? 'broken' : undefined
}

/** The destination is unreachable: nothing departs, and one job probes whether it is back. */
export function unreachable(because: Because): Pause {
  return { ...pauseUnknown(because, true), about: 'destination' }
}

/** A connection broke: a single break may be the job's fault, several are the destination's. */
export function broken(because: Because): Pause {
  return { ...pauseUnknown(because, true), mayBeDone: true }
}

/** Feedback on an error of no protocol, which only shows whether there was a connection. */
export function feedbackOfConnection(answer: OtherAnswer): readonly Feedback[] {
  const failure = connectionFailure(answer)
  if (failure === undefined) return []
  if (failure === 'none') return [unreachable({ reason: `no connection (${answer.code})`, source: 'error' })]
  return [broken({ reason: `connection broken (${answer.code})`, source: 'error' })]
}
