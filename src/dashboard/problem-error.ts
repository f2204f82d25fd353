import { SluiceError } from '../errors.ts'
import type { ProblemTerms } from '../http/responses/problem.ts'

/** A request that is refused, as its caller is told. */
export class DashboardProblem extends SluiceError {
  readonly terms: ProblemTerms

  /** @param detail for the caller: nothing that he may not know */
  constructor(status: number, detail: string, terms: Partial<ProblemTerms> = {}) {
    super(detail)
    this.terms = { kind: 'about:blank', ...terms, status, detail }
  }
}
