/** Entries of a stream, as Redis returns them. */
export type StreamReply = readonly (readonly [id: string, flat: readonly string[]])[]

export interface StreamEntry {
  readonly id: string
  /** When it was written, ms on Redis's clock. */
  readonly atMs: number
  readonly fields: Readonly<Record<string, string>>
}

export function streamEntries(reply: StreamReply): StreamEntry[] {
  return reply.map(([id, flat]) => {
    const fields: Record<string, string> = {}
    for (let i = 0; i + 1 < flat.length; i += 2) fields[flat[i] as string] = flat[i + 1] as string
    return { id, atMs: Number(id.split('-')[0]), fields }
  })
}

/** The order in which entries were written, even across two streams: negative if the first is older. */
export function compareIds(one: string, other: string): number {
  const [oneMs = 0, oneCount = 0] = one.split('-').map(Number)
  const [otherMs = 0, otherCount = 0] = other.split('-').map(Number)
  return oneMs - otherMs || oneCount - otherCount
}

/** Anything but a JSON object gives an empty object: another version may have written it. */
export function parsedObject(json: string | undefined): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(json ?? '{}')
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : {}
  } catch {
    return {}
  }
}
