import type { GroupOverride, Shape } from 'sluice'
import { checkGroupId, encodeGroupOverride, InvalidShapeError } from 'sluice/internal'

/** What is set for one group from the first arrival on, as `setGroup` and `pauseGroup` do. */
export type GroupSetting = GroupOverride & {
  readonly paused?: true
  /** How long all of it lasts, ms. Default: to the end. */
  readonly ttlMs?: number
}

/** By the ids of the groups. */
export type GroupSettings = Readonly<Record<string, GroupSetting>>

/**
 * @param startUs the first arrival
 * @returns by group, what `lua/groups/queue-groups.lua` reads of it: JSON
 * @throws InvalidShapeError, InvalidRateError, InvalidGroupError
 */
export function encodeGroupSettings(settings: GroupSettings, { groups }: Shape, startUs: number) {
  if (typeof settings !== 'object' || settings === null || Array.isArray(settings)) {
    throw new InvalidShapeError(`setGroup must be an object: group -> fields; got ${JSON.stringify(settings)}`)
  }
  const encoded = Object.entries(settings).map(([id, setting]) => [id, encodeSetting(id, setting, startUs)])
  if (encoded.length > 0 && groups === undefined) throw new InvalidShapeError('setGroup needs a shape with groups')
  return Object.fromEntries(encoded) as Readonly<Record<string, string>>
}

function encodeSetting(id: string, setting: GroupSetting, startUs: number): string {
  checkGroupId(id)
  const { paused, ttlMs, ...override } = setting ?? {}
  if (paused !== undefined && paused !== true) {
    throw new InvalidShapeError(`setGroup.paused must be true; got ${JSON.stringify(paused)}`)
  }
  if (ttlMs !== undefined && !(Number.isFinite(ttlMs) && ttlMs > 0)) {
    throw new InvalidShapeError(`setGroup.ttlMs must be a number > 0; got ${JSON.stringify(ttlMs)}`)
  }
  const isOnlyPaused = paused && Object.keys(override).length === 0
  const values = { ...(isOnlyPaused ? {} : encodeGroupOverride(override)), ...(paused && { paused }) }
  const startMs = Math.floor(startUs / 1000)
  const entry = { by: '', reason: '', at: startMs, ...(ttlMs !== undefined && { until: startMs + Math.ceil(ttlMs) }) }
  const fields = Object.entries(values).map(([field, value]) => [field, { ...entry, value }])
  return JSON.stringify({ fields: Object.fromEntries(fields), at: String(startUs) })
}
