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
const field = z
  .string()
  .refine((name) => SETTABLE_FIELDS.some((one) => one === name), `expected one of ${SETTABLE_FIELDS.join(', ')}`)

/** Its length is checked where groups are changed. */
const group = z.string('expected the id of a group')
const groupField = z
  .string()
  .refine((name) => GROUP_FIELDS.includes(name), `expected one of ${GROUP_FIELDS.join(', ')}`)

/** Which limit has which keys is checked where their values are changed. */
const limit = z.string('expected the name of a limit').max(64)
const limitField = z
  .string()
  .refine((name) => LIMIT_VALUES.some((one) => one === name), `expected one of ${LIMIT_VALUES.join(', ')}`)

const jobId = z.string('expected the id of a job').min(1, 'expected the id of a job').max(1024)
const failedReason = z.string().min(1, 'expected a text, or nothing for all').max(1024).optional()
/** Checked where dead letters are. */
const deadQueue = z.string('expected the name of a queue').min(1, 'expected the name of a queue').max(128)

/** The possible changes, by their `action`. */
export const actionSchema = z.discriminatedUnion('action', [
  z.strictObject({
    action: z.literal('setShape'),
    // The fields are checked where shapes are checked.
    shape: z.record(z.string(), z.unknown()),
    ttlMs,
    reason,
  }),
  z.strictObject({ action: z.literal('clearShape'), fields: z.array(field).optional(), reason }),
  z.strictObject({ action: z.literal('pause'), ttlMs, reason }),
  z.strictObject({ action: z.literal('resume'), reason }),
  z.strictObject({
    action: z.literal('setGroup'),
    group,
    // The fields are checked where those of groups are checked.
    settings: z.record(z.string(), z.unknown()),
    ttlMs,
    reason,
  }),
  z.strictObject({ action: z.literal('clearGroup'), group, fields: z.array(groupField).optional(), reason }),
  z.strictObject({ action: z.literal('pauseGroup'), group, ttlMs, reason }),
  z.strictObject({ action: z.literal('resumeGroup'), group, reason }),
  z.strictObject({
    action: z.literal('setLimit'),
    limit,
    keys: limitKeys,
    // What the limit has of these is checked where its values are set.
    values: z.record(z.string(), z.unknown()),
    ttlMs,
    reason,
  }),
  z.strictObject({
    action: z.literal('clearLimit'),
    limit,
    keys: limitKeys,
    fields: z.array(limitField).optional(),
    reason,
  }),
  z.strictObject({ action: z.literal('setMode'), mode: z.enum(['enforce', 'shadow', 'off']), ttlMs, reason }),
  z.strictObject({
    action: z.literal('redrive'),
    from: deadQueue,
    jobId: jobId.optional(),
    failedReason,
    reason,
  }),
  z.strictObject({ action: z.literal('dropDeadLetter'), from: deadQueue, letterId: jobId, reason }),
  z.strictObject({ action: z.literal('dropDeadLetters'), from: deadQueue, failedReason, reason }),
  z.strictObject({ action: z.literal('retryJob'), jobId, reason }),
  z.strictObject({ action: z.literal('removeJob'), jobId, reason }),
  z.strictObject({ action: z.literal('deadLetterJob'), jobId, to: deadQueue, reason }),
  z.strictObject({ action: z.literal('promoteJob'), jobId, reason }),
  z.strictObject({ action: z.literal('cancelJob'), jobId, reason }),
  z.strictObject({ action: z.literal('retryJobs'), failedReason, reason }),
  z.strictObject({ action: z.literal('removeJobs'), failedReason, reason }),
  z.strictObject({ action: z.literal('deadLetterJobs'), failedReason, to: deadQueue, reason }),
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
