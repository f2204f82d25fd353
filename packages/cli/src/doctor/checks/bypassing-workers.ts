import { clientText, countText, shardPrefix, unreportedClients } from 'sluice/internal'
import { answers, type ExaminedQueue, type Finding, Findings, permitted, shownIds } from '../check.ts'

const MAX_ACTIVE = 5000
const REMEDY = "make every worker of the queue a ShapedWorker, or give BullMQ's Worker createShapedBackend()"

/** Workers that take jobs without the meter: a single one breaks the rate. */
export async function bypassingWorkers(examined: ExaminedQueue): Promise<Finding[]> {
  const { queue, prefix, status } = examined
  const findings = new Findings('foreign-workers', queue)
  if (status.shards) {
    const first = shardPrefix(prefix, queue, 0)
    return [
      findings.skipped('each shard has workers of its own', `sluice doctor ${queue} --prefix '${first}', and so on`),
    ]
  }
  const jobs = await permitted(findings, '+lrange +hmget', async () => runningPastMeter(findings, examined))
  const connections = await permitted(findings, '+client|list', async () => strangeConnections(findings, examined))
  const found = [...jobs, ...connections]
  return found.length > 0 ? found : [findings.ok('every visible worker obeys the meter')]
}

/** The same test that the meter uses: a job that it released has a departure time, which equals its start. */
async function runningPastMeter(
  findings: Findings,
  { client, prefix, queue, status }: ExaminedQueue,
): Promise<Finding[]> {
  const { shape } = status
  if (shape?.mode !== 'enforce' || !(shape.rate || shape.limits || shape.groups)) return []
  const base = `${prefix}:${queue}:`
  const changes = await client.hmget(`${base}meta:shape`, 'changedAt', 'rulesAt', 'groupsAt')
  const changedMs = Math.max(...changes.map(Number)) / 1000
  const ids = await client.lrange(`${base}active`, 0, MAX_ACTIVE - 1)
  const jobs = await answers(
    client,
    ids.map((id) => ['hmget', base + id, 'processedOn', 'departure']),
  )
  const foreign = ids.filter((_id, i) => {
    const [processedOn, departure] = jobs[i] as [string | null, string | null]
    if (processedOn === null || Number(processedOn) < changedMs) return false
    return departure === null || Math.ceil(Number(departure) / 1000) !== Number(processedOn)
  })
  if (foreign.length === 0) return []
  return [findings.error(`jobs are running that the meter did not release: ${shownIds(foreign)}`, REMEDY)]
}

/** Every BullMQ worker names its connection after its queue; Sluice's workers also report themselves. */
async function strangeConnections(findings: Findings, examined: ExaminedQueue): Promise<Finding[]> {
  const { client, prefix, queue, status, newWorkerS } = examined
  const list = String(await client.client('LIST'))
  const of = (reported: readonly (number | undefined)[]) =>
    unreportedClients(list, { prefix, queue, reported, newWorkerS })
  const clients = of(status.workers.map(({ clientId }) => clientId))
  if (clients.length === 0) return []
  const message =
    `${countText(of([]).length, 'worker')} connected, ${status.workers.length} reported: ` +
    `the meter may be bypassed by ${shownIds(clients.map(clientText))}`
  return [status.bypass ? findings.error(message, REMEDY) : findings.warning(message, REMEDY)]
}
