import { readFileSync } from 'node:fs'
import { reasonOf } from 'sluice-programs'
import { z } from 'zod'

const mode = z.enum(['enforce', 'shadow', 'off'])
const share = z.number().gt(0).max(1)

const ruleFields = {
  rate: z.string().optional(),
  burst: z.number().optional(),
  concurrency: z.number().optional(),
}

const limitSchema = z.strictObject({
  name: z.string(),
  version: z.number().optional(),
  per: z.enum(['caller', 'address', 'all']).default('caller'),
  algorithm: z.string().optional(),
  ...ruleFields,
  tiers: z.record(z.string(), z.strictObject(ruleFields)).optional(),
  maxKeys: z.number().optional(),
  onError: z.enum(['throw', 'allow']).optional(),
  timeoutMs: z.number().optional(),
  mode: mode.optional(),
})

const queueSheddingSchema = z.strictObject({
  depthShare: share.optional(),
  targetAgeMs: z.number().positive().optional(),
  mode: mode.optional(),
})

const fileSchema = z
  .looseObject({
    queues: z.record(z.string(), z.looseObject({ maxWaitMs: z.number().optional() })),
    /** Rate limits per caller, per address, or for all callers together. */
    limits: z.array(limitSchema).default([]),
    /** From critical to sheddable. */
    classes: z.array(z.strictObject({ name: z.string(), reserved: z.number().default(0) })).optional(),
    shedding: z
      .strictObject({
        maxRequestsInFlight: z.number().optional(),
        maxLoopUtilisation: share.optional(),
        mode: mode.optional(),
        queues: z.record(z.string(), queueSheddingSchema).optional(),
      })
      .default({}),
  })
  .superRefine(({ queues, shedding }, context) => {
    for (const name of Object.keys(shedding.queues ?? {})) {
      if (Object.hasOwn(queues, name)) continue
      context.addIssue({ code: 'custom', path: ['shedding', 'queues', name], message: 'expected the name of a queue' })
    }
  })

/** A limit in the configuration file. */
export type LimitConfig = z.output<typeof limitSchema>

/** A configuration file: the options of the middleware before the gateway, and of the gateway itself. */
export interface GatewayConfig {
  readonly limits: readonly LimitConfig[]
  readonly classes: z.output<typeof fileSchema>['classes']
  readonly shedding: z.output<typeof fileSchema>['shedding']
  /** Checked by `createGateway`. */
  readonly gateway: Readonly<Record<string, unknown>>
  readonly queueNames: readonly string[]
  /** The longest that a caller may wait for a result, ms. */
  readonly maxWaitMs: number
}

/**
 * Reads a configuration file.
 * @throws Error whose message has one line for each problem.
 */
export function readConfigFile(path: string): GatewayConfig {
  const lines = (texts: readonly string[]) => new Error(texts.map((text) => `${path}: ${text}`).join('\n'))
  let json: unknown
  try {
    json = JSON.parse(readFileSync(path, 'utf8'))
  } catch (error) {
    throw lines([reasonOf(error)])
  }
  const parsed = fileSchema.safeParse(json)
  if (!parsed.success) {
    throw lines(parsed.error.issues.map((issue) => `${issue.path.join('.') || 'the file'}: ${issue.message}`))
  }
  const { limits, classes, shedding, ...gateway } = parsed.data
  const queues = Object.entries(gateway.queues)
  const maxWaitMs = Math.max(0, ...queues.map(([, queue]) => queue.maxWaitMs ?? 0))
  return { limits, classes, shedding, gateway, queueNames: queues.map(([name]) => name), maxWaitMs }
}
