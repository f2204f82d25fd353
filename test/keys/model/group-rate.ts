import { ceil, givenBack, intervalOf, reshaped } from '../../groups/model/charges.ts'
import type { Group } from './group-turns.ts'
import type { GroupSettings } from './shape.ts'

/** The bucket of a group under the rate that holds now; none without a rate, which jobs without a group never have. */
function bucketOf(group: Group, { rate, burst = 1 }: GroupSettings, nowUs: number) {
  if (!rate || group.name === '') return undefined
  const intervalUs = intervalOf(rate)
  const { bucket } = group
  if (!bucket) {
    group.bucket = { tat: 0, last: 0, intervalUs, burst }
  } else if (bucket.intervalUs !== intervalUs || bucket.burst !== burst) {
    group.bucket = { ...reshaped(bucket, Math.max(nowUs, bucket.last), intervalUs, burst), last: bucket.last }
  }
  return group.bucket
}

/** The earliest slot of a cost, µs. */
export function slotByRate(group: Group, settings: GroupSettings, cost: number, nowUs: number): number {
  const bucket = bucketOf(group, settings, nowUs)
  if (!bucket) return 0
  const { tat, last, intervalUs, burst } = bucket
  return Math.ceil(Math.max(nowUs, last, tat + ceil((Math.min(cost, burst) - burst) * intervalUs)))
}

/** Called before and after what applies to a group changes: a debt is one of units. */
export function reshapeRate(group: Group, settings: GroupSettings, nowUs: number): void {
  bucketOf(group, settings, nowUs)
}

export function chargeRate(group: Group, settings: GroupSettings, cost: number, slotUs: number, nowUs: number): void {
  const bucket = bucketOf(group, settings, nowUs)
  if (!bucket) return
  bucket.tat = Math.max(bucket.tat, slotUs) + ceil(cost * bucket.intervalUs)
  bucket.last = slotUs
}

/** Only of the last slot. @returns whether it is given back */
export function takeBackRate(group: Group, settings: GroupSettings, cost: number, slotUs: number, nowUs: number) {
  if (group.name === '' || group.bucket?.last !== slotUs) return false
  const bucket = bucketOf(group, settings, nowUs)
  if (!bucket) return false
  bucket.tat -= ceil(cost * bucket.intervalUs)
  return true
}

/** @param isUnder whether the job was charged under the rate of now @returns whether the group has a rate */
export function settleRate(
  group: Group,
  settings: GroupSettings,
  { change, slotUs, isUnder }: { change: number; slotUs: number; isUnder: boolean },
  nowUs: number,
): boolean {
  const bucket = bucketOf(group, settings, nowUs)
  if (!bucket) return false
  if (change > 0) bucket.tat = Math.max(bucket.tat, nowUs) + ceil(change * bucket.intervalUs)
  else if (isUnder) bucket.tat -= givenBack(bucket, -change, slotUs, nowUs)
  return true
}
