import { readFileSync } from 'node:fs'
import { z } from 'zod'
import type { Difference } from './difference.ts'
import { type FileOutcome, statesByName } from './outcome.ts'

const exceptionsSchema = z.array(
  z.strictObject({
    /** Path inside BullMQ's `tests`. */
    file: z.string().min(1),
    /** Full name, as the runner prints it. */
    test: z.string().min(1),
    reason: z.string().min(10),
  }),
)

/** A test that may fail with ShapedWorker in the place of Worker: it reaches into BullMQ's loop or passes `limiter`. */
export type SuiteException = z.infer<typeof exceptionsSchema>[number]

/** @throws {Error} if the list is not an array of `{ file, test, reason }` */
export function readExceptions(file: string | URL): SuiteException[] {
  const parsed = exceptionsSchema.safeParse(JSON.parse(readFileSync(file, 'utf8')))
  if (!parsed.success) throw new Error(`exceptions.json is not as expected:\n${z.prettifyError(parsed.error)}`)
  return parsed.data
}

/** The exception that covers a difference. None does with our backend under BullMQ's own Worker. */
export function exceptionFor(
  difference: Difference,
  exceptions: readonly SuiteException[],
): SuiteException | undefined {
  if (difference.mode !== 'worker') return undefined
  return exceptions.find(({ file, test }) => file === difference.file && test === difference.test)
}

/** Exceptions that this run shows to be needless: the test passes with ShapedWorker, or no longer exists. */
export function staleExceptions(
  worker: readonly FileOutcome[],
  exceptions: readonly SuiteException[],
): SuiteException[] {
  return exceptions.filter(({ file, test }) => {
    const outcome = worker.find((candidate) => candidate.file === file)
    if (!outcome) return false
    const state = statesByName(outcome).get(test)?.state
    return state === undefined || state === 'passed'
  })
}
