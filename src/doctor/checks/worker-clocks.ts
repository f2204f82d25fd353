import type { ExaminedQueue } from '../check.ts'
import { type Finding, Findings } from '../finding.ts'
import { shownIds } from '../orphans/shown-ids.ts'

const REMEDY =
  'bring the workers nearer to Redis, let nothing block their event loops, or raise maxLatenessMs: a job goes back where its lateness and this error are more'

/** How well the workers know Redis's clock: their starts may be that much later than reported. */
export async function workerClocks({ queue, status: { workers, shape } }: ExaminedQueue): Promise<Finding[]> {
  const findings = new Findings('worker-clocks', queue)
  const known = workers.flatMap(({ host, pid, clockErrorMs }) =>
    clockErrorMs === undefined ? [] : [{ name: `${host}:${pid}`, clockErrorMs }],
  )
  if (known.length === 0) return [findings.ok('no worker has told how well it knows the clock of Redis')]
  const worstMs = Math.max(...known.map(({ clockErrorMs }) => clockErrorMs))
  const message = `workers know the clock of Redis to ${worstMs.toFixed(1)} ms`
  const unsure = known.filter(({ clockErrorMs }) => clockErrorMs > (shape?.maxLatenessMs ?? Number.POSITIVE_INFINITY))
  if (unsure.length === 0) return [findings.ok(message)]
  const names = shownIds(unsure.map(({ name }) => name))
  return [
    findings.warning(`${message}, and maxLatenessMs is ${shape?.maxLatenessMs}: ${names} give their jobs back`, REMEDY),
  ]
}
