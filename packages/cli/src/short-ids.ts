import { plainText } from 'sluice/internal'
import { CommandError, EXIT_CODES } from './command-error.ts'
import { shortText } from './queue-text.ts'

/** Longer ids are shortened where they lead a table; JSON has them in full. */
const MAX_CHARACTERS = 20

const MARK = '…'

/** An id for a table. A command that reads one takes it in this form too: {@link fullId}. */
export function shortId(id: string): string {
  return shortText(id, MAX_CHARACTERS)
}

/**
 * The id that was given, or the only one of which it is the short form.
 * @param ids reads all ids that are possible; only for short forms
 * @throws CommandError if several ids have it
 */
export async function fullId(given: string, ids: () => Promise<readonly string[]>): Promise<string> {
  const [start = '', end, ...more] = given.split(MARK)
  if (end === undefined || more.length > 0) return given
  const isMeant = (id: string) => id.length >= start.length + end.length && id.startsWith(start) && id.endsWith(end)
  const [found, other] = (await ids()).filter(isMeant)
  if (other !== undefined) {
    throw new CommandError(EXIT_CODES.usage, `several ids are "${plainText(given)}": --json has them in full`)
  }
  return found ?? given
}

/** How a command that changes several jobs or letters is told which. */
export interface Choice {
  readonly all?: true
  readonly failedReason?: string
}

/** @throws CommandError unless they are chosen in exactly one way */
export function checkChoice(things: 'jobs' | 'letters', ids: readonly string[], { all, failedReason }: Choice): void {
  if ([ids.length > 0, all, failedReason !== undefined].filter(Boolean).length === 1) return
  throw new CommandError(
    EXIT_CODES.usage,
    `expected the ids of ${things}, or --all, or --failed-reason: exactly one of these`,
  )
}
