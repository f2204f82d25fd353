import type { ExaminedQueue } from '../check.ts'
import { type Finding, Findings } from '../finding.ts'
import { shownIds } from '../orphans/shown-ids.ts'

const REMEDY =
  'run the workers nearer to Redis, keep their event loops free, or raise maxLatenessMs: a job is given back if its lateness plus this error is more'

/** How well the workers know Redis's clock: they may start jobs later than reported by this error. */
export async function workerClocks({ queue, status: { workers, shape } }: ExaminedQueue): Promise<Finding[]> {
  const findings = new Findings('worker-clocks', queue)
  const known = workers.flatMap(({ host, pid, clockErrorMs }) =>
    clockErrorMs === undefined ? [] : [{ name: `${host}:${pid}`, clockErrorMs }],
  )
  if (known.length === 0) return [findings.ok('no worker has reported how well it knows the clock of Redis')]
  const worstMs = Math.max(...known.map(({ clockErrorMs }) => clockErrorMs))
  const message = `workers know the clock of Redis to ${worstMs.toFixed(1)} ms`
  const unsure = known.filter(({ clockErrorMs }) => clockErrorMs > (shape?.maxLatenessMs ?? Number.POSITIVE_INFINITY))
  if (unsure.length === 0) return [findings.ok(message)]
  const names = shownIds(unsure.map(({ name }) => name))
  return [
    findings.warning(`${message}, and maxLatenessMs is ${shape?.maxLatenessMs}: ${names} give their jobs back`, REMEDY),
  ]
}
