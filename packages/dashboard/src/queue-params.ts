import type { JobState } from 'sluice/inspect'
import { ProblemError } from 'sluice-gateway/internal'
import { z } from 'zod'
import { SORTS } from './fleet-page.ts'

const STATES = [
  'waiting',
  'prioritized',
  'delayed',
  'active',
  'completed',
  'failed',
  'waiting-children',
] as const satisfies readonly JobState[]

const whole = (max: number, fallback: number) =>
  z
    .string()
    .regex(/^\d{1,9}$/, 'expected a whole number')
    .transform(Number)
    .pipe(z.number().max(max))
    .default(fallback)
const page = { start: whole(999_999_999, 0), count: whole(200, 50) }

/** The requested part of a list of jobs. */
export const jobsQuery = z.object({
  state: z.enum(STATES).default('waiting'),
  /** Of failed jobs, whatever the state. */
  failedReason: z.string().min(1, 'expected a text').max(1024).optional(),
  ...page,
})
export const deadQuery = z.object({
  from: z.string().regex(/^[^:\p{Cc}]{1,128}$/u, 'expected the name of a queue'),
  ...page,
})
/** The value of each key that a limit counts by. */
export const limitKeys = z.record(z.string().max(64), z.string('expected a text').max(1024))
export const limitQuery = z.object({
  keys: z
    .string('expected the keys as JSON, such as {"model":"gpt-large"}')
    .max(4096)
    .transform((text, context) => {
      try {
        return JSON.parse(text) as unknown
      } catch {
        context.addIssue({ code: 'custom', message: 'expected JSON, such as {"model":"gpt-large"}' })
        return z.NEVER
      }
    })
    .pipe(limitKeys),
})
export const seriesQuery = z.object({
  since: z.iso
    .datetime({ offset: true, error: 'expected a time such as 2026-01-31T12:00:00Z' })
    .transform((text) => new Date(text))
    .optional(),
})
const truth = (fallback: 'true' | 'false') =>
  z
    .enum(['true', 'false'])
    .default(fallback)
    .transform((text) => text === 'true')

/** The requested part of very many queues. */
export const fleetQuery = z.object({
  start: page.start,
  count: whole(200, 100),
  sort: z.enum(SORTS).default('name'),
  down: truth('false'),
  filter: z.string().max(200, 'expected at most 200 characters').default(''),
  marked: truth('false'),
})
export const eventsQuery = fleetQuery.extend({ queue: z.string().optional(), fleet: truth('true') })

/** @throws ProblemError 400 with every problem */
export function readQuery<S extends z.ZodType>(schema: S, query: unknown): z.output<S> {
  const parsed = schema.safeParse(query)
  if (parsed.success) return parsed.data
  const problems = parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`)
  throw new ProblemError(400, problems.join('; '))
}
