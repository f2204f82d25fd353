import { type FileHandle, open } from 'node:fs/promises'
import type { DepartureRecord } from 'sluice-workers'
import type { Shaper } from './queues.ts'
import type { Departure } from './report.ts'

/** Follows the file to which the workers of a run append their departures, from its start. */
export interface FollowedLog {
  /** The departures that were written since the last call. */
  read(): Promise<{ queue: string; departure: Departure }[]>
  close(): Promise<void>
}

/** BullMQ's own workers have no slots: only the start counts. */
function toDeparture(
  { effectId, departureTimeUs, departedAtUs, latenessUs }: DepartureRecord,
  shaper: Shaper,
): Departure {
  return shaper === 'bullmq' ? { effectId, departedAtUs } : { effectId, departureTimeUs, departedAtUs, latenessUs }
}

/** Creates the file, so that it can be followed before the first worker writes. */
export async function followDepartures(file: string, shaper: Shaper): Promise<FollowedLog> {
  const handle: FileHandle = await open(file, 'a+')
  let offset = 0
  let rest = ''
  return {
    read: async () => {
      const { size } = await handle.stat()
      if (size === offset) return []
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(size - offset), 0, size - offset, offset)
      offset += bytesRead
      // Ids and numbers are ASCII, so a read that ends inside a line cannot cut a character in two.
      const lines = (rest + buffer.toString('utf8', 0, bytesRead)).split('\n')
      rest = lines.pop() ?? ''
      return lines.map((line) => {
        const record = JSON.parse(line) as DepartureRecord
        return { queue: record.queue, departure: toDeparture(record, shaper) }
      })
    },
    close: () => handle.close(),
  }
}
