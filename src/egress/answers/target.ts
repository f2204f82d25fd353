import type { CallOutcome } from '../../feedback/feedback-source.ts'
import { causesOf } from './causes.ts'
import { urlIn } from './http.ts'
import { read } from './read.ts'

/**
 * The origin and path of the URL that was called, found in what a processor threw or returned; undefined where it is not
 * known. The query is left out: it tells calls of one endpoint apart.
 */
export function targetOf(outcome: CallOutcome): string | undefined {
  const around = 'threw' in outcome ? causesOf(outcome.threw) : [outcome.returned]
  for (const one of around) {
    const url = urlIn(read(one, 'response')) || urlIn(one) || urlIn(read(one, 'config'))
    if (url !== '') return url.split(/[?#]/, 1)[0]
  }
  return undefined
}
