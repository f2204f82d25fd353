import type { Shape, ShapedQueueOptions } from 'sluice'
import { encodeShape, InvalidInputError, LIMIT_NAME, NO_KEYS, ONCE_JOBS } from 'sluice/internal'
import { z } from 'zod'
import { DEFAULT_MAX_BODY_BYTES } from '../body.ts'
import { DEFAULT_FORMS, HEADER_FORMS, type HeaderForm } from '../responses/rate-limit-fields.ts'

/** Thrown for options of `createGateway` that can never work: one line for each, with its location. */
export class InvalidGatewayOptionError extends InvalidInputError {}

/** Redis: ioredis's options, or a client. Omitted options get the gateway's defaults. */
export type GatewayConnection = ShapedQueueOptions['connection']

/** What a caller may set for a job, by BullMQ's and Sluice's names. */
const JOB_OPTIONS = ['delay', 'priority', 'cost', 'mustStartBefore', 'keys'] as const
export type JobOption = (typeof JOB_OPTIONS)[number]

/**
 * What names the group of a job, or one of its keys: the caller, by its token; a field of the request's header; or a value
 * in the data of the job, by its JSON Pointer (RFC 6901), as it is or by the domain of an email address or the host of a URL.
 */
export type NameSource =
  | 'token'
  | { readonly header: string; readonly required?: boolean | undefined }
  | {
      readonly data: string
      /** Default 'text'. */
      readonly as?: 'text' | 'mail-domain' | 'url-host' | undefined
      /** Whether a job without it is refused. Default false: it is one of those without a group, or without this key. */
      readonly required?: boolean | undefined
    }

/** Whether a field of the request's header names it. */
export function isHeader(source: NameSource | undefined): source is Extract<NameSource, { header: string }> {
  return typeof source === 'object' && 'header' in source
}

/** One queue as callers see it. Everything but functions is JSON, so that it may be kept in a file. */
export interface QueueRule {
  /** The shape that the gateway declares. Default: the stored shape applies. */
  readonly shape?: Shape | undefined
  /** The name of the queue's jobs. Default 'job'. */
  readonly jobName?: string | undefined
  /** JSON Schema for a job's data: draft 2020-12, or draft-07 if `$schema` says so. `true` accepts anything. */
  readonly schema: boolean | Readonly<Record<string, unknown>>
  /** Whether a request must have an Idempotency-Key. Default 'optional'. */
  readonly idempotency?: 'optional' | 'required' | undefined
  /** Whether callers may read jobs' results and failure reasons. Default false. */
  readonly results?: boolean | undefined
  /** Which options callers may set in `opts`: `delay`, `priority`, `cost`, `mustStartBefore`, `keys`. Default: nothing. */
  readonly allow?: readonly JobOption[] | undefined
  /** Where a job's group comes from; needs `groups` in the shape. The caller's `priority` then counts inside the group. */
  readonly group?: NameSource | undefined
  /** Where each of a job's keys comes from, by key name. Callers cannot set these keys. */
  readonly keys?: Readonly<Record<string, NameSource>> | undefined
  /** BullMQ's `attempts`, `backoff`, `removeOnComplete` and `removeOnFail`. */
  readonly jobOptions?: JobDefaults | undefined
  /** How many jobs a request may add: 1 to 200, default 200. */
  readonly maxJobs?: number | undefined
  /** How many bytes a body may have. Default 1 MiB, as in the HTTP adapters. */
  readonly maxBodyBytes?: number | undefined
  /** How deeply arrays and objects in a body may nest. Default 64. */
  readonly maxDepth?: number | undefined
  /**
   * How many ms `Prefer: wait` may delay a response; needs `results`. Default 0.
   */
  readonly maxWaitMs?: number | undefined
}

/** See BullMQ's options of the same names. */
export interface JobDefaults {
  readonly attempts?: number | undefined
  readonly backoff?: number | { readonly type: string; readonly delay?: number | undefined } | undefined
  readonly removeOnComplete?: boolean | number | Kept | undefined
  readonly removeOnFail?: boolean | number | Kept | undefined
}

interface Kept {
  /** Seconds. */
  readonly age?: number | undefined
  readonly count?: number | undefined
}

export interface GatewayOptions {
  readonly connection: GatewayConnection
  /** Prefix of the queues' keys. Default 'bull'. */
  readonly prefix?: string | undefined
  /** By name. Any other queue gets 404. */
  readonly queues: Readonly<Record<string, QueueRule>>
  /** Prefix of every path, such as '/v1'. Default: none. */
  readonly basePath?: string | undefined
  /** How limits are reported. Default: only draft 10. */
  readonly headers?: readonly HeaderForm[] | undefined
  /** How long an Idempotency-Key identifies its request. ms, default 24 h. */
  readonly idempotencyTtlMs?: number | undefined
  /**
   * How long to wait for Redis. ms, default 1000. If the gateway's shape of a queue has `durability`, it waits twice
   * `timeoutMs` longer there.
   */
  readonly redisTimeoutMs?: number | undefined
  /** Called with errors of connections, and with errors that callers see as 500. */
  readonly onError?: ((error: Error, queueName: string | undefined) => void) | undefined
}

/** With defaults filled in. */
type Filled<T> = { readonly [K in keyof T]-?: Exclude<T[K], undefined> }
export type ResolvedRule = Filled<Omit<QueueRule, 'shape' | 'group'>> & Pick<QueueRule, 'shape' | 'group'>
export type ResolvedOptions = Filled<Omit<GatewayOptions, 'queues'>> & {
  readonly queues: Readonly<Record<string, ResolvedRule>>
}

const MAX_TIME_MS = 3_600_000
const wholeFrom = (least: number, most: number) => z.int().min(least).max(most)

const shape = z.custom<Shape>().superRefine((value, context) => {
  try {
    encodeShape(value)
  } catch (error) {
    context.addIssue({ code: 'custom', message: (error as Error).message })
  }
})

const kept = z.union([
  z.boolean(),
  wholeFrom(0, Number.MAX_SAFE_INTEGER),
  z.strictObject({ age: z.number().min(0).optional(), count: wholeFrom(0, Number.MAX_SAFE_INTEGER).optional() }),
])
const backoff = z.union([
  z.number().min(0),
  z.strictObject({ type: z.string().min(1), delay: z.number().min(0).optional() }),
])

const nameSource = z.union(
  [
    z.literal('token'),
    z.strictObject({
      header: z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/, 'expected the name of a header field'),
      required: z.boolean().optional(),
    }),
    z.strictObject({
      data: z.string().regex(/^(\/([^~/]|~[01])*)+$/, "expected a JSON Pointer such as '/tenant'"),
      as: z.enum(['text', 'mail-domain', 'url-host']).optional(),
      required: z.boolean().optional(),
    }),
  ],
  "expected 'token', { header: 'a name', required? } or { data: '/a/pointer', as?: 'text', 'mail-domain' or 'url-host', required? }",
)

const keyName = z.string().refine((name) => LIMIT_NAME.test(name) && !NO_KEYS.includes(name), {
  message: `expected the name of a key: 1 to 64 of A-Z a-z 0-9 _ . -, not ${NO_KEYS.join(' or ')}`,
})

const rule = z
  .strictObject({
    shape: shape.optional(),
    jobName: z.string().min(1).max(128).default('job'),
    schema: z.union(
      [z.boolean(), z.record(z.string(), z.unknown())],
      'expected a JSON Schema: an object, or a boolean',
    ),
    idempotency: z.enum(['optional', 'required']).default('optional'),
    results: z.boolean().default(false),
    allow: z.array(z.enum(JOB_OPTIONS)).default([]),
    group: nameSource.optional(),
    keys: z.record(keyName, nameSource).default({}),
    jobOptions: z
      .strictObject({
        attempts: wholeFrom(1, 1_000_000).optional(),
        backoff: backoff.optional(),
        removeOnComplete: kept.optional(),
        removeOnFail: kept.optional(),
      })
      .default({}),
    maxJobs: wholeFrom(1, ONCE_JOBS).default(ONCE_JOBS),
    maxBodyBytes: wholeFrom(1, 2 ** 30).default(DEFAULT_MAX_BODY_BYTES),
    maxDepth: wholeFrom(1, 1000).default(64),
    maxWaitMs: wholeFrom(0, MAX_TIME_MS).default(0),
  })
  .refine(({ maxWaitMs, results }) => maxWaitMs === 0 || results, {
    path: ['maxWaitMs'],
    message: 'waits for results: set results to true, or leave it out',
  })
  .refine(({ group: named, shape: declared }) => !named || !declared || declared.groups, {
    path: ['group'],
    message: 'needs groups in the shape: add groups to it, or leave it out',
  })

const options = z.strictObject({
  connection: z.custom<GatewayConnection>((value) => typeof value === 'object' && value !== null, {
    message: "expected ioredis's options, or a client",
  }),
  prefix: z.string().min(1).default('bull'),
  queues: z
    .record(
      z
        .string()
        .regex(/^[^:\p{Cc}]{1,128}$/u, 'expected the name of a queue, without a colon')
        .refine((name) => name !== '.' && name !== '..', 'clients resolve . and .. in the path of its jobs: rename it'),
      rule,
    )
    .refine((queues) => Object.keys(queues).length > 0, 'expected at least one queue'),
  basePath: z
    .string()
    .regex(/^(\/[\w.~-]+)*$/, "expected a path such as '/v1', without a slash at its end")
    .default(''),
  headers: z.array(z.enum(HEADER_FORMS as readonly [HeaderForm])).default([...DEFAULT_FORMS]),
  idempotencyTtlMs: wholeFrom(1000, Number.MAX_SAFE_INTEGER).default(86_400_000),
  redisTimeoutMs: wholeFrom(1, 60_000).default(1000),
  onError: z
    .custom<NonNullable<GatewayOptions['onError']>>((value) => typeof value === 'function', 'expected a function')
    .default(() => () => {}),
})

/**
 * Validates the options and fills in defaults.
 * @throws InvalidGatewayOptionError
 */
export function resolveGatewayOptions(given: GatewayOptions): ResolvedOptions {
  const parsed = options.safeParse(given)
  if (parsed.success) return parsed.data as ResolvedOptions
  const lines = parsed.error.issues.map((issue) => {
    // What is wrong with a key is an issue of its own, within.
    const message = issue.code === 'invalid_key' ? issue.issues[0]?.message : issue.message
    return `${issue.path.join('.') || 'options'}: ${message}`
  })
  throw new InvalidGatewayOptionError(lines.join('\n'))
}
