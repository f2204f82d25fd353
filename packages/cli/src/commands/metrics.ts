import { once } from 'node:events'
import { parseNonEmpty, parseQueueName, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES } from '../cli.ts'
import { connectCluster } from '../redis-client.ts'

interface MetricsCommandOptions {
  readonly host: string
  readonly port: number
  readonly maxQueues: number
  readonly groups: number
  readonly keys: number
}

export const addCommand: AddCommand = (program, run) => {
  program
    .command('metrics')
    .description('Serves the metrics of all queues at /metrics, until it is stopped. Run only one instance.')
    .argument('[queues...]', 'only these queues (default: all that have a shape)')
    .option('--host <host>', 'the address to listen on', parseNonEmpty, '127.0.0.1')
    .option('--port <number>', 'the port; 0: any free one', wholeNumber(0, 65_535), 9464)
    .option('--max-queues <number>', 'queues with their own label', wholeNumber(1, 100_000), 100)
    .option('--groups <number>', 'groups per queue with their own label', wholeNumber(0, 1000), 0)
    .option('--keys <number>', 'values of keys per queue with their own label', wholeNumber(0, 1000), 0)
    .addHelpText(
      'after',
      `
Examples:
  $ sluice metrics emails http --port 9000
  $ sluice metrics --host 0.0.0.0 --read-url redis://replica:6379
`,
    )
    .action(run(serveMetrics))
}

async function serveMetrics(cli: Cli, names: readonly string[], options: MetricsCommandOptions): Promise<void> {
  const { createMetrics, startMetricsServer } = await import('sluice-metrics')
  const { redisUrl, readUrl = redisUrl, prefix } = cli.options
  const cluster = cli.options.cluster ? connectCluster(readUrl) : undefined
  const metrics = createMetrics({
    connection: (cluster ?? { url: readUrl, connectionName: 'sluice-metrics' }) as never,
    prefix,
    maxQueues: options.maxQueues,
    groups: options.groups,
    keys: options.keys,
    ...(names.length > 0 ? { queues: names.map(parseQueueName) } : {}),
  })
  try {
    const server = await startMetricsServer({ metrics, host: options.host, port: options.port }).catch(
      (error: Error) => {
        throw new CommandError(EXIT_CODES.failed, `cannot listen on ${options.host}:${options.port}: ${error.message}`)
      },
    )
    const url = `http://${options.host}:${server.port}/metrics`
    cli.print({ url }, () => `metrics at ${url}`)
    void warnWithoutRedis(cli)
    if (!cli.signal.aborted) await once(cli.signal, 'abort')
    await server.close()
  } finally {
    await metrics.close()
    cluster?.disconnect()
  }
}

/** It serves without Redis as well: `sluice_up` tells Prometheus, and this the one who starts it. */
async function warnWithoutRedis(cli: Cli): Promise<void> {
  try {
    await cli.inspector().queues()
  } catch (error) {
    if (cli.signal.aborted) return
    cli.note(`sluice: warning: ${cli.reasonOf(error)}; it is tried again, and sluice_up is 0 until then`)
  }
}
