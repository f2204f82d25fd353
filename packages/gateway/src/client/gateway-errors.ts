import { InvalidInputError, SluiceError } from 'sluice/internal'

/** Thrown for an option or argument of a gateway client that can never work. */
export class InvalidGatewayCallError extends InvalidInputError {}

/** One problem with a body. */
export interface BodyProblem {
  /** JSON Pointer (RFC 6901) into the body. */
  readonly pointer: string
  readonly detail: string
}

/** The content of an answer of application/problem+json (RFC 9457); any of it may be missing. */
export interface GatewayProblem {
  readonly type?: string
  readonly title?: string
  readonly status?: number
  readonly detail?: string
  readonly errors?: readonly BodyProblem[]
  readonly retryAfterMs?: number
  readonly 'violated-policies'?: readonly string[]
  readonly limit?: number
  readonly remaining?: number
}

/** Thrown when the gateway answers with an error; nothing was added. */
export class GatewayError extends SluiceError {
  constructor(
    readonly status: number,
    readonly problem: GatewayProblem,
  ) {
    super(`the gateway answered ${status}: ${problem.detail ?? problem.title ?? 'no reason given'}`)
  }
}

/** 429 or 503: retry later. With the key of the call nothing is added twice. */
export class GatewayRefusedError extends GatewayError {
  readonly violatedPolicies: readonly string[]

  constructor(
    status: number,
    problem: GatewayProblem,
    /** When to retry, ms. */
    readonly retryAfterMs: number,
  ) {
    super(status, problem)
    this.violatedPolicies = problem['violated-policies'] ?? []
  }
}
