/** The id of the group that a job's options name, as `lua/groups/queue-groups.lua` reads it; undefined for none. */
export function groupIdOf(opts: string | null | undefined): string | undefined {
  if (!opts?.includes('"group":')) return undefined
  const { group } = JSON.parse(opts) as { group?: { id?: unknown } | null }
  const id = group?.id
  if (typeof id === 'number') return String(id)
  return typeof id === 'string' && id !== '' ? id : undefined
}
