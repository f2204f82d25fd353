import { nearName } from '../call-options.ts'
import { InvalidInputError, UnsupportedOptionError } from '../errors.ts'
import { SETTABLE_FIELDS } from '../shape/shape.ts'

/** The kind of options, as error messages name it. */
type Kind = 'queue' | 'worker' | 'flow producer' | 'job' | 'wait'

/** Options of BullMQ Pro, which BullMQ itself would accept and ignore. */
const PRO: Readonly<Record<Kind, readonly string[]>> = {
  queue: ['group', 'batch', 'batches'],
  worker: ['group', 'batches', 'ttl'],
  'flow producer': ['group', 'batch', 'batches'],
  job: [],
  wait: [],
}

const FEEDBACK = ['feedback', 'adapt', 'giveUpAfterMs']
/** Sluice's own options. Queues and workers are often created with the same object, so each accepts the other's. */
const SHAPED = [
  ...[
    'shape',
    'declarer',
    'admitTimeoutMs',
    'allowUnshaped',
    'deadLetter',
    'maxLoopUtilisation',
    'report',
    'functions',
  ],
  ...FEEDBACK,
]
const OWN: Readonly<Record<Kind, readonly string[]>> = {
  queue: SHAPED,
  worker: [...SHAPED, 'batch'],
  'flow producer': ['admitTimeoutMs', 'functions'],
  job: ['cost', 'costs', 'mustStartBefore', 'runTimeoutMs', 'group', 'keys', 'tier'],
  // The options of addWhenFree, given together with those of the job.
  wait: ['timeoutMs', 'signal'],
}

/** Fields of a shape that mean something else, or nothing, outside it. */
const SHAPE_FIELDS: readonly string[] = [...SETTABLE_FIELDS, 'horizonMs', 'onStateLoss', 'version']

/** Options of BullMQ's worker with the name of a field of a shape. */
const BULLMQ: readonly string[] = ['concurrency']

/** Valid names are cached, because a job's are checked on every add; at most this many. */
const MAX_PASSED = 1000
const passed: Readonly<Record<Kind, Set<string>>> = {
  ...{ queue: new Set(), worker: new Set(), 'flow producer': new Set() },
  ...{ job: new Set(), wait: new Set() },
}

/** Replacements for options of BullMQ Pro. */
const INSTEAD: Readonly<Record<string, string>> = {
  group: 'what applies to groups is in the shape (shape.groups)',
  batch: 'it is an option of the worker',
  batches: "the worker's option is batch: { size }",
  ttl: 'give the jobs runTimeoutMs',
}

/**
 * Refuses options that would be ignored silently: those of BullMQ Pro, fields of a shape outside it, and names that
 * almost match one of ours. All others are left to BullMQ.
 * @throws UnsupportedOptionError for BullMQ Pro's, InvalidInputError
 */
export function checkOptionNames(kind: Kind, options: object | undefined): void {
  for (const name in options) {
    if (passed[kind].has(name) || (options as Readonly<Record<string, unknown>>)[name] === undefined) continue
    if (!OWN[kind].includes(name)) checkName(kind, name)
    if (passed[kind].size < MAX_PASSED) passed[kind].add(name)
  }
}

function checkName(kind: Kind, name: string): void {
  if (PRO[kind].includes(name)) {
    const instead = INSTEAD[name] ? `; ${INSTEAD[name]}` : ''
    throw new UnsupportedOptionError(
      `the ${kind} option '${name}' belongs to BullMQ Pro and is not supported${instead}`,
    )
  }
  const meant = meantBy(kind, name)
  if (meant) throw new InvalidInputError(`there is no ${kind} option '${name}': did you mean ${meant}?`)
}

function meantBy(kind: Kind, name: string): string | undefined {
  const own = nearName(name, OWN[kind])
  if (own !== undefined) return `'${own}'`
  if (kind === 'job' || kind === 'wait' || (kind === 'worker' && BULLMQ.includes(name))) return undefined
  const stock = kind === 'worker' ? nearName(name, BULLMQ) : undefined
  if (stock !== undefined) return `'${stock}'`
  const field = nearName(name, ['shape', ...SHAPE_FIELDS])
  if (field === undefined) return undefined
  return kind === 'flow producer' ? 'a shape of each queue of the flow' : `shape: { ${field} }`
}
