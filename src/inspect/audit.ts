import type { LimitWire } from '../limits/definition.ts'
import type { Batch, Deferred } from './batch.ts'
import type { AuditEntry, ChargedRule } from './queue-status.ts'
import { type StreamReply, streamEntries } from './stream.ts'

/** As written by `lua/reports/audit.lua`: numbers may be strings. */
type Granted = readonly [
  id: string,
  slotUs: number | string,
  cost: number | string,
  interval: number | string,
  burst: number | string,
  limits: Readonly<Record<string, number | readonly [cost: number, member: string, rule?: GrantedRule]>> | 0,
  group?: GrantedGroup | 0,
  groupLimits?: readonly [
    id: string,
    taken: Readonly<Record<string, number>>,
    values?: Readonly<Record<string, string>> | 0,
    rules?: Readonly<Record<string, GrantedRule>>,
  ],
]

type GrantedRule = number | readonly [interval: number | string, burst: number, schedule?: LimitWire['schedule']]

type GrantedGroup = readonly [id: string, interval: number | string, burst: number | string]

/** A later change of a charge, as written by `lua/reports/audit.lua`. */
type Settled = readonly [
  id: string,
  slotUs: string,
  rate: string,
  group: string,
  limits: Readonly<Record<string, string>> | 0,
  groupLimits: Readonly<Record<string, string>> | 0,
  atUs: string,
]

/** Asks for the departures that `shape.audit` recorded, in the order in which they were granted. */
export function askForAudit(base: string, batch: Batch): Deferred<AuditEntry[]> {
  const grants = batch.add<StreamReply>('xrange', `${base}meta:audit`, '-', '+')
  const started = batch.add<StreamReply>('xrange', `${base}meta:audit:starts`, '-', '+')
  return () => entriesOf(grants(), startsBySlot(started()))
}

function entriesOf(grants: StreamReply, starts: ReadonlyMap<number, number[]>): AuditEntry[] {
  const settled = settledOf(grants)
  // A returned slot may have been granted again: the last entry of a slot is the one that was used.
  return granted(grants)
    .toReversed()
    .map(({ grantedUs, heldUs, entry: [jobId, slot, cost, interval, burst, limits, group, own] }) => {
      const startedUs = starts.get(Number(slot))?.pop()
      const later = settled.get(departureKey(jobId, slot))
      return {
        jobId,
        slotUs: Number(slot),
        ...{ cost: Number(cost), grantedUs, heldUs },
        ...(later && later.rate.refunded > 0 ? { refunded: later.rate.refunded } : {}),
        ...(Number(interval) > 0 ? { intervalUs: Number(interval), burst: Number(burst) } : {}),
        ...limitsOf(limits || {}),
        ...rulesOf(limits || {}, own),
        ...(later && later.limits.size > 0 ? { limitsSettled: Object.fromEntries(later.limits) } : {}),
        ...(group ? { group: groupOf(group, later?.group.refunded ?? 0) } : {}),
        ...(own ? { groupLimits: groupLimitsOf(own, later) } : {}),
        ...(startedUs === undefined ? {} : { startedUs }),
      }
    })
    .reverse()
}

function limitsOf(limits: Exclude<Granted[5], 0>): Pick<AuditEntry, 'limits' | 'members'> {
  const entries = Object.entries(limits).map(([name, taken]) => [name, ...[taken].flat()] as [string, number, string?])
  const members = entries.flatMap(([name, , member]) => (member === undefined ? [] : [[name, member]]))
  return {
    limits: Object.fromEntries(entries),
    ...(members.length > 0 ? { members: Object.fromEntries(members) } : {}),
  }
}

function rulesOf(limits: Exclude<Granted[5], 0>, own: Granted[7]): Pick<AuditEntry, 'limitRules'> {
  const ofMembers = Object.entries(limits).map(([name, taken]) => [name, [taken].flat()[2]] as const)
  const rules = [...ofMembers, ...Object.entries(own?.[3] ?? {})]
  const found = rules.flatMap(([name, rule]) => (rule === undefined ? [] : [[name, ruleOf(rule as GrantedRule)]]))
  return found.length > 0 ? { limitRules: Object.fromEntries(found) } : {}
}

function ruleOf(rule: GrantedRule): ChargedRule {
  if (typeof rule === 'number') return { limit: rule }
  const [interval, burst, schedule] = rule
  return { intervalUs: Number(interval), burst, ...(schedule ? { schedule } : {}) }
}

function groupOf([id, interval, burst]: GrantedGroup, refunded: number): NonNullable<AuditEntry['group']> {
  return { id, intervalUs: Number(interval), burst: Number(burst), ...(refunded > 0 ? { refunded } : {}) }
}

function groupLimitsOf(
  [id, taken, values]: NonNullable<Granted[7]>,
  later: SettledCharges | undefined,
): NonNullable<AuditEntry['groupLimits']> {
  const own = later?.groupLimits
  const settled = own && own.size > 0 ? { settled: Object.fromEntries(own) } : {}
  return { id, taken, ...(values ? { values } : {}), ...settled }
}

function departureKey(jobId: string, slot: number | string): string {
  return `${slot} ${jobId}`
}

/** The changes of one charge by `settleCost`. */
class SettledCharge {
  #units = 0
  /** The largest refund at any time: other jobs may have used it before more was charged again. */
  refunded = 0
  /** When more was charged, µs. */
  readonly chargedUs: number[] = []

  change(units: number, atUs: number): void {
    this.#units -= units
    this.refunded = Math.max(this.refunded, this.#units)
    if (units > 0) this.chargedUs.push(atUs)
  }
}

class SettledCharges {
  readonly rate = new SettledCharge()
  readonly group = new SettledCharge()
  /** By name. */
  readonly limits = new Map<string, SettledCharge>()
  readonly groupLimits = new Map<string, SettledCharge>()

  change([, , rate, group, limits, groupLimits, at]: Settled): void {
    const atUs = Number(at)
    this.rate.change(Number(rate), atUs)
    this.group.change(Number(group), atUs)
    changeEach(this.limits, limits || {}, atUs)
    changeEach(this.groupLimits, groupLimits || {}, atUs)
  }
}

function changeEach(charges: Map<string, SettledCharge>, units: Readonly<Record<string, string>>, atUs: number): void {
  for (const [name, text] of Object.entries(units)) {
    const charge = charges.get(name) ?? new SettledCharge()
    charge.change(Number(text), atUs)
    charges.set(name, charge)
  }
}

function settledOf(reply: StreamReply): Map<string, SettledCharges> {
  const settled = new Map<string, SettledCharges>()
  for (const { fields } of streamEntries(reply)) {
    if (fields.s === undefined) continue
    const change = JSON.parse(fields.s) as Settled
    const key = departureKey(change[0], change[1])
    const charges = settled.get(key) ?? new SettledCharges()
    charges.change(change)
    settled.set(key, charges)
  }
  return settled
}

/** When processors were called, by the slots of their jobs; the latest call of a slot comes last. */
function startsBySlot(reply: StreamReply): Map<number, number[]> {
  const starts = new Map<number, number[]>()
  for (const [slotUs, startedUs] of listed<readonly [number, number]>(reply)) {
    const known = starts.get(slotUs)
    if (known) known.push(startedUs)
    else starts.set(slotUs, [startedUs])
  }
  return starts
}

/** Each entry of the stream holds those of one call, and the state of the queue then. */
function granted(reply: StreamReply) {
  return streamEntries(reply).flatMap(({ fields: { n = '[]', at, held } }) =>
    (JSON.parse(n) as Granted[]).map((entry) => ({ entry, grantedUs: Number(at), heldUs: Number(held) })),
  )
}

/** Each entry of the stream holds a list. */
function listed<T>(reply: StreamReply): T[] {
  return streamEntries(reply).flatMap(({ fields }) => JSON.parse(fields.n ?? '[]') as T[])
}
