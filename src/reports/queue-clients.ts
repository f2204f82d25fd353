/** A client of Redis that BullMQ named as a worker of a queue. */
export interface QueueClient {
  /** The name of the worker; '' if it has none. */
  readonly name: string
  /** Host and port, as Redis sees them. */
  readonly address: string
}

/** Workers that opened their connections just now may not have reported yet, s. */
const NEW_S = 5

interface WorkersOfQueue {
  readonly prefix: string
  readonly queue: string
  /** For each reporting worker, Redis's id of its connection; undefined if unknown. */
  readonly reported: readonly (number | undefined)[]
  /** Default 5. */
  readonly newWorkerS?: number
}

/**
 * The connections named like a queue's workers that no worker with Sluice has reported as its own. If some workers do
 * not know their own connection, it may be among them.
 * @param list Redis's reply to CLIENT LIST
 */
export function unreportedClients(list: string, workers: WorkersOfQueue): QueueClient[] {
  const { prefix, queue, reported, newWorkerS = NEW_S } = workers
  const name = `${prefix}:${Buffer.from(queue).toString('base64')}`
  const known = new Set(reported)
  const found = list
    .split('\n')
    .map(fieldsOf)
    .filter(({ name: own = '' }) => own === name || own.startsWith(`${name}:w:`))
    .filter(({ id, age }) => Number(age) >= newWorkerS && !known.has(Number(id)))
    .map(({ name: own = '', addr = '' }) => ({ name: own.slice(name.length + ':w:'.length), address: addr }))
  const unknown = reported.filter((id) => id === undefined).length
  return found.length > unknown ? found : []
}

function fieldsOf(line: string): Record<string, string> {
  const fields = line.split(' ').map((field) => [field.split('=', 1)[0], field.slice(field.indexOf('=') + 1)])
  return Object.fromEntries(fields) as Record<string, string>
}

/** Redis's id of a connection, from its reply to CLIENT INFO there; undefined if it has none. */
export function clientId(info: string): number | undefined {
  const id = Number(fieldsOf(info).id)
  return Number.isInteger(id) ? id : undefined
}

export function clientText({ name, address }: QueueClient): string {
  return name === '' ? address : `"${name}" at ${address}`
}
