import { type ExaminedQueue, type Finding, Findings, shownIds } from '../check.ts'

/** A worker that is near Redis, and whose event loop is free, knows its clock to a few ms. */
const UNSURE_MS = 50

const REMEDY = 'run the workers nearer to Redis, and keep their event loops free'
const REMEDY_OF_RETURNS = `${REMEDY}, or raise maxLatenessMs: a job is given back if its lateness plus this error is more`

/** How well the workers know Redis's clock: they may start jobs later than reported by this error. */
export async function workerClocks({ queue, status: { workers, shape } }: ExaminedQueue): Promise<Finding[]> {
  const findings = new Findings('worker-clocks', queue)
  const known = workers.flatMap(({ host, pid, clockErrorMs }) =>
    clockErrorMs === undefined ? [] : [{ name: `${host}:${pid}`, clockErrorMs }],
  )
  if (known.length === 0) return [findings.ok('no worker has reported how well it knows the clock of Redis')]
  const worstMs = Math.max(...known.map(({ clockErrorMs }) => clockErrorMs))
  const message = `workers know the clock of Redis to ${worstMs.toFixed(1)} ms`
  const namesOver = (ms: number) => known.filter(({ clockErrorMs }) => clockErrorMs > ms).map(({ name }) => name)
  const returning = shape?.maxLatenessMs === undefined ? [] : namesOver(shape.maxLatenessMs)
  if (returning.length > 0) {
    const returns = `${shownIds(returning)} give their jobs back`
    return [findings.warning(`${message}, and maxLatenessMs is ${shape?.maxLatenessMs}: ${returns}`, REMEDY_OF_RETURNS)]
  }
  const unsure = namesOver(UNSURE_MS)
  if (unsure.length === 0) return [findings.ok(message)]
  return [findings.warning(`${message}: jobs of ${shownIds(unsure)} may start that much later than reported`, REMEDY)]
}
