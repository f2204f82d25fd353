import { SluiceError } from 'sluice/internal'
import type { ProblemTerms } from '../responses/problem.ts'

/** A problem with a request, which becomes the response. */
export class RequestProblem extends SluiceError {
  readonly terms: ProblemTerms

  constructor(terms: ProblemTerms) {
    super(terms.detail)
    this.terms = terms
  }
}

/** A problem without a type of its own: only a status and a detail. */
export function problem(status: number, detail: string, headers?: Readonly<Record<string, string>>): RequestProblem {
  return new RequestProblem({ status, kind: 'about:blank', detail, headers })
}
