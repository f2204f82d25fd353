import {
  encodeGroupOverride,
  encodeOverride,
  GROUP_FIELDS,
  InvalidInputError,
  LIMIT_VALUES,
  parseRate,
  SETTABLE_FIELDS,
} from 'sluice/internal'

import { ProblemError } from 'sluice-gateway/internal'
import { z } from 'zod'
import { limitKeys } from './queue-params.ts'

const reason = z
  .string('expected why: a text of 1 to 500 characters')
  .trim()
  .min(1, 'expected why: a text of 1 to 500 characters')
  .max(500, 'expected at most 500 characters')
  .regex(/^[^\p{Cc}]*$/u, 'expected no control characters')
/** At most a year, so that the end is a valid date. */
const ttlMs = z.number().int().min(1).max(31_536_000_000).optional()
/** Some fields to clear; all without it. */
const fieldsOf = (known: readonly string[]) =>
  z.array(z.string().refine((name) => known.includes(name), `expected one of ${known.join(', ')}`)).optional()

/** Its length is checked where groups are changed. */
const group = z.string('expected the id of a group')

/** Which limit has which keys is checked where their values are changed. */
const limit = z.string('expected the name of a limit').max(64)

const jobId = z.string('expected the id of a job').min(1, 'expected the id of a job').max(1024)
const failedReason = z.string().min(1, 'expected a text, or nothing for all').max(1024).optional()
/** Checked where dead letters are. */
const deadQueue = z.string('expected the name of a queue').min(1, 'expected the name of a queue').max(128)

/** Each change needs a reason. */
function change<A extends string, F extends z.ZodRawShape>(action: A, fields: F) {
  return z.strictObject({ action: z.literal(action), ...fields, reason })
}

/** Checked where such fields are: those of shapes, of groups, or what a limit has of them. */
const values = z.record(z.string(), z.unknown())

/** The possible changes, by their `action`. */
export const actionSchema = z.discriminatedUnion('action', [
  change('setShape', { shape: values, ttlMs }),
  change('clearShape', { fields: fieldsOf(SETTABLE_FIELDS) }),
  change('pause', { ttlMs }),
  change('resume', {}),
  change('setGroup', { group, settings: values, ttlMs }),
  change('clearGroup', { group, fields: fieldsOf(GROUP_FIELDS) }),
  change('pauseGroup', { group, ttlMs }),
  change('resumeGroup', { group }),
  change('setLimit', { limit, keys: limitKeys, values, ttlMs }),
  change('clearLimit', { limit, keys: limitKeys, fields: fieldsOf(LIMIT_VALUES) }),
  change('setMode', { mode: z.enum(['enforce', 'shadow', 'off']), ttlMs }),
  change('redrive', { from: deadQueue, jobId: jobId.optional(), failedReason }),
  change('dropDeadLetter', { from: deadQueue, letterId: jobId }),
  change('dropDeadLetters', { from: deadQueue, failedReason }),
  change('retryJob', { jobId }),
  change('removeJob', { jobId }),
  change('deadLetterJob', { jobId, to: deadQueue }),
  change('promoteJob', { jobId }),
  change('cancelJob', { jobId }),
  change('retryJobs', { failedReason }),
  change('removeJobs', { failedReason }),
  change('deadLetterJobs', { failedReason, to: deadQueue }),
])

/** A requested change of a queue, with its reason. */
export type Action = z.output<typeof actionSchema>

/** @throws ProblemError 422 with every problem, and the first field that is wrong */
export function readAction(body: unknown): Action {
  const parsed = actionSchema.safeParse(body)
  if (!parsed.success) {
    const problems = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'the body'}: ${message}`)
    throw wrong(problems.join('; '), parsed.error.issues[0]?.path.join('.') ?? '')
  }
  const action = parsed.data
  if (action.action === 'setShape') checkEach('shape', action.shape, encodeOverride)
  if (action.action === 'setGroup') checkEach('settings', action.settings, encodeGroupOverride)
  if (action.action === 'setLimit') checkEach('values', action.values, checkRate)
  return action
}

/** Field by field, so that the error can be shown where it was made. All together are checked when they are stored. */
function checkEach(of: string, given: Readonly<Record<string, unknown>>, check: (one: object) => unknown): void {
  for (const [field, value] of Object.entries(given)) {
    try {
      check({ [field]: value })
    } catch (error) {
      throw error instanceof InvalidInputError ? wrong(error.message, `${of}.${field}`) : error
    }
  }
}

/** Without the limit, only this can be checked. */
function checkRate({ rate }: { readonly rate?: unknown }): void {
  if (typeof rate === 'string') parseRate(rate)
}

function wrong(detail: string, field: string): ProblemError {
  return new ProblemError(422, detail, field === '' ? {} : { extra: { field } })
}
