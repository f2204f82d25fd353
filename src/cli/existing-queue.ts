import type { QueueStatus } from '../inspect/queue-status.ts'
import { plainText } from '../plain-text.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import { type Cli, CommandError } from './cli.ts'
import { EXIT_CODES } from './exit-codes.ts'

/**
 * An existing queue, for writes: a mistyped name must not create one.
 * @throws CommandError
 */
export async function existingQueue(cli: Cli, name: string): Promise<ShapedQueue> {
  const client = await cli.client()
  const base = `${cli.options.prefix}:${name}:`
  if ((await client.exists(`${base}meta`, `${base}meta:shape`)) === 0) throw noSuchQueue(cli, name)
  return cli.queue(name)
}

/**
 * The state of an existing queue, from `--read-url` if given.
 * @throws CommandError
 */
export async function existingStatus(cli: Cli, name: string): Promise<QueueStatus> {
  const [status] = await cli.inspector().status([name])
  if (!status) throw noSuchQueue(cli, name)
  return status
}

function noSuchQueue(cli: Cli, name: string): CommandError {
  const { prefix } = cli.options
  return new CommandError(EXIT_CODES.notFound, `no queue "${plainText(name)}" under prefix "${plainText(prefix)}"`)
}
