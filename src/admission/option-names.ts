import { InvalidInputError, UnsupportedOptionError } from '../errors.ts'
import { settableFields } from '../shape/shape.ts'

/** The kind of options, as error messages name it. */
type Kind = 'queue' | 'worker' | 'flow producer' | 'job' | 'wait'

/** Options of BullMQ Pro, which BullMQ itself would accept and ignore. */
const PRO: Readonly<Record<Kind, readonly string[]>> = {
  queue: ['group', 'batch', 'batches'],
  worker: ['group', 'batch', 'batches', 'ttl'],
  'flow producer': ['group', 'batch', 'batches'],
  job: [],
  wait: [],
}

const FEEDBACK = ['feedback', 'adapt', 'maxThrottled']
/** Sluice's own. Queues and workers are often created with the same object, so each accepts the other's. */
const SHAPED = [
  ...['shape', 'declarer', 'admitTimeoutMs', 'allowUnshaped', 'deadLetter', 'maxLoopUtilisation', 'report'],
  ...FEEDBACK,
]
const OWN: Readonly<Record<Kind, readonly string[]>> = {
  queue: SHAPED,
  worker: SHAPED,
  'flow producer': ['admitTimeoutMs'],
  job: ['cost', 'costs', 'mustStartBefore', 'group'],
  // The options of addWhenFree, given among those of the job.
  wait: ['timeoutMs', 'signal'],
}

/** Fields of a shape that mean something else, or nothing, outside it. */
const SHAPE_FIELDS: ReadonlySet<string> = new Set([...settableFields(), 'horizonMs', 'onStateLoss', 'version'])

/** BullMQ options with the name of one of ours. */
const BULLMQ: ReadonlySet<string> = new Set(['concurrency'])

/** Names that passed are remembered, because a job's are checked on every add; at most this many. */
const MAX_PASSED = 1000
const passed: Readonly<Record<Kind, Set<string>>> = {
  ...{ queue: new Set(), worker: new Set(), 'flow producer': new Set() },
  ...{ job: new Set(), wait: new Set() },
}

/** Replacements for options of BullMQ Pro. */
const INSTEAD: Readonly<Record<string, string>> = {
  group: 'what applies to groups is in the shape (shape.groups)',
  ttl: 'give the processor a timeout of its own',
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
  if (kind !== 'job' && kind !== 'wait' && SHAPE_FIELDS.has(name) && !(kind === 'worker' && BULLMQ.has(name))) {
    throw new InvalidInputError(
      `'${name}' is a field of the shape: expected shape: { ${name}: … }, got it as a ${kind} option`,
    )
  }
  if (kind === 'flow producer' && name === 'shape') {
    throw new InvalidInputError(
      "a flow producer has no shape: each queue of a flow has its own; got the option 'shape'",
    )
  }
  const meant = OWN[kind].find((own) => isAlmost(name, own))
  if (meant) throw new InvalidInputError(`there is no ${kind} option '${name}': expected '${meant}'`)
}

/** Equal apart from case and a final s or, for longer names, apart from two letters. */
function isAlmost(name: string, own: string): boolean {
  const [one, other] = [bare(name), bare(own)]
  return one === other || (other.length >= 8 && distance(one, other) <= 2)
}

function bare(name: string): string {
  return name.toLowerCase().replace(/[_-]/g, '').replace(/s$/, '')
}

/** Number of letters inserted, deleted or replaced. (Levenshtein 1966; Wagner and Fischer 1974) */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, i) => i)
  for (const [i, letter] of [...one].entries()) {
    const next = [i + 1]
    for (let j = 0; j < other.length; j++) {
      const replaced = (row[j] as number) + (letter === other[j] ? 0 : 1)
      next.push(Math.min(replaced, (row[j + 1] as number) + 1, (next[j] as number) + 1))
    }
    row = next
  }
  return row[other.length] as number
}
