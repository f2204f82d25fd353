import { type Answer, type Batch, tolerant } from './batch.ts'

/** Redis's time, µs; this machine's where the user is not allowed to run TIME. */
export function redisTime(batch: Batch): Answer<number> {
  const time = batch.add<[seconds: string, us: string]>('time')
  return () => {
    const answer = tolerant(time)
    return answer ? Number(answer[0]) * 1_000_000 + Number(answer[1]) : Date.now() * 1000
  }
}
