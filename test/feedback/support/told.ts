import type { Feedback } from '../../../src/feedback/feedback.ts'
import type { FeedbackSource } from '../../../src/index.ts'

/** An error that carries what the other side said. */
export class Told extends Error {
  readonly found: readonly Feedback[]

  constructor(...found: readonly Feedback[]) {
    super('told')
    this.found = found
  }
}

/** Hears what {@link Told} carries, thrown or returned; what else is returned went well. */
export const ears: FeedbackSource = {
  name: 'ears',
  listen: (outcome) => {
    const end = 'threw' in outcome ? outcome.threw : outcome.returned
    return end instanceof Told ? end.found.map((feedback) => ({ feedback })) : []
  },
}

export const said = { scope: 'queue', source: 'status', reason: '429' } as const
