import type { ExaminedQueue } from '../check.ts'
import { type Finding, Findings } from '../finding.ts'

/** What is out of the ordinary about the queue, a finding for each: the same that `status` and the fleet page show. */
export async function conditions({ queue, status }: ExaminedQueue): Promise<Finding[]> {
  if (status.conditions.length === 0) return [new Findings('state', queue).ok('nothing is out of the ordinary')]
  return status.conditions.map(({ name, level, text, next }) => {
    const findings = new Findings(name.toLowerCase().replaceAll(' ', '-'), queue)
    return findings[level](text, next)
  })
}
