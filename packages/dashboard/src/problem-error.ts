import { SluiceError } from 'sluice/internal'
import type { ProblemTerms } from 'sluice-gateway'

/** A refused request, as reported to its caller. */
export class DashboardProblem extends SluiceError {
  readonly terms: ProblemTerms

  /** @param detail for the caller: nothing confidential */
  constructor(status: number, detail: string, terms: Partial<ProblemTerms> = {}) {
    super(detail)
    this.terms = { kind: 'about:blank', ...terms, status, detail }
  }
}
