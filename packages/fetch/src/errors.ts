import { InvalidInputError, SluiceError } from 'sluice/internal'

/** Thrown for invalid options of `egressFetch`. Names every problem, never a secret. */
export class InvalidFetchOptionsError extends InvalidInputError {
  constructor(readonly problems: readonly string[]) {
    super(problems.join('; '))
  }
}

/** A request cannot be sent as it is: a retry would not help. Names the fields, never their values. */
export class InvalidRequestError extends InvalidInputError {
  constructor(readonly problems: readonly string[]) {
    super(`the request was not sent: ${problems.join('; ')}`)
  }
}

/** A URL leads to an address that is not public. Nothing was sent. */
export class RefusedAddressError extends InvalidRequestError {
  constructor() {
    super(['url: expected a host whose addresses are all public'])
  }
}

/** No complete answer arrived in time. The request may have taken effect. */
export class RequestTimeoutError extends SluiceError {
  readonly code = 'ETIMEDOUT'

  constructor(
    what: string,
    readonly timeoutMs: number,
  ) {
    super(`${what} was not answered within ${timeoutMs} ms`)
  }
}

/**
 * No complete answer arrived: the connection failed, or what arrived is not HTTP. The request may have taken effect.
 */
export class RequestFailedError extends SluiceError {
  constructor(
    what: string,
    reason: string,
    /** The error code of Node, such as `ECONNREFUSED` or `ECONNRESET`, or ''. */
    readonly code: string,
  ) {
    super(`${what} failed: ${reason}`)
  }
}

/** A response with a status other than 2xx. */
export interface FailedResponse {
  readonly statusCode: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: unknown
  readonly url: string
  readonly method: string
}

/** The answer has a status other than 2xx; redirects are among them, since none is followed. */
export class HttpResponseError extends SluiceError implements FailedResponse {
  readonly statusCode: number
  /** The kept ones, with names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** JSON if it is JSON, else text. */
  readonly body: unknown
  /** Without its query. */
  readonly url: string
  readonly method: string

  constructor(what: string, response: FailedResponse) {
    super(`${what} was answered with ${response.statusCode}`)
    this.statusCode = response.statusCode
    this.headers = response.headers
    this.body = response.body
    this.url = response.url
    this.method = response.method
  }
}
