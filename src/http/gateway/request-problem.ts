import { SluiceError } from '../../errors.ts'
import type { ProblemTerms } from '../responses/problem.ts'

/** A problem with a request, which becomes the answer. */
export class RequestProblem extends SluiceError {
  readonly terms: ProblemTerms

  constructor(terms: ProblemTerms) {
    super(terms.detail)
    this.terms = terms
  }
}

/** A problem that says no more than its status. */
export function problem(status: number, detail: string, headers?: Readonly<Record<string, string>>): RequestProblem {
  return new RequestProblem({ status, kind: 'about:blank', detail, headers })
}
