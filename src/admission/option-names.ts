import { InvalidInputError, UnsupportedOptionError } from '../errors.ts'
import { settableFields } from '../shape/shape.ts'

/** Which options: as a message names them. */
type Kind = 'queue' | 'worker' | 'flow producer' | 'job' | 'wait'

/** Options of BullMQ Pro, which BullMQ itself would take and ignore. */
const PRO: Readonly<Record<Kind, readonly string[]>> = {
  queue: ['group', 'batch', 'batches'],
  worker: ['group', 'batch', 'batches', 'ttl'],
  'flow producer': ['group', 'batch', 'batches'],
  job: ['group'],
  wait: [],
}

const FEEDBACK = ['feedback', 'adapt', 'maxThrottled']
/** Those that are Sluice's. Queues and workers are often made with the same object, so that each takes the other's. */
const SHAPED = [
  ...['shape', 'declarer', 'admitTimeoutMs', 'allowUnshaped', 'deadLetter', 'maxLoopUtilisation', 'report'],
  ...FEEDBACK,
]
const OWN: Readonly<Record<Kind, readonly string[]>> = {
  queue: SHAPED,
  worker: SHAPED,
  'flow producer': ['admitTimeoutMs'],
  job: ['cost', 'costs', 'mustStartBefore'],
  // Those of addWhenFree, which stand among a job's.
  wait: ['timeoutMs', 'signal'],
}

/** Fields of a shape that mean something else, or nothing, beside it. */
const SHAPE_FIELDS: ReadonlySet<string> = new Set([...settableFields(), 'horizonMs', 'onStateLoss', 'version'])

/** BullMQ's options that are like one of ours. */
const BULLMQ: ReadonlySet<string> = new Set(['concurrency'])

/** Names that were found to be none of these: a job's are looked at each time. So many are remembered, whatever comes. */
const MAX_PASSED = 1000
const passed: Readonly<Record<Kind, Set<string>>> = {
  ...{ queue: new Set(), worker: new Set(), 'flow producer': new Set() },
  ...{ job: new Set(), wait: new Set() },
}

/** What takes the place of an option of BullMQ Pro. */
const INSTEAD: Readonly<Record<string, string>> = {
  group: 'rates and limits of groups are limits of the shape (shape.limits), or queues of their own',
  ttl: 'give the processor a timeout of its own',
}

/**
 * Refuses what would be ignored in silence: options of BullMQ Pro, fields of a shape beside it, and names that are almost
 * one of ours. Others are BullMQ's business.
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
      `the ${kind} option '${name}' is of BullMQ Pro, which Sluice does not know${instead}`,
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

/** The same but for case and a last s; or, of longer names, but for two letters. */
function isAlmost(name: string, own: string): boolean {
  const [one, other] = [bare(name), bare(own)]
  return one === other || (other.length >= 8 && distance(one, other) <= 2)
}

function bare(name: string): string {
  return name.toLowerCase().replace(/[_-]/g, '').replace(/s$/, '')
}

/** How many letters are put in, left out or replaced. (Levenshtein 1966; Wagner and Fischer 1974) */
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
