import type { Command } from 'commander'
import { type AddCommand, CommandError, EXIT_CODES } from '../cli.ts'

interface Options {
  readonly host?: string
  readonly port?: string
  readonly tokenFile?: string
  readonly allowActions?: boolean
  readonly showData?: boolean
  readonly trustProxy?: string
  readonly trustProxyReason?: string
  readonly title?: string
  readonly logLevel?: string
}

const EXAMPLES = `
To open it to other machines, use a token file (\`sluice gateway --new-token
NAME\` prints an entry) and a proxy that terminates TLS.

Examples:
  $ sluice dashboard --allow-actions --by alice
  $ sluice dashboard --redis-url redis://master --read-url redis://replica
  $ sluice dashboard --host 0.0.0.0 --token-file tokens.json
  $ sluice dashboard --host 0.0.0.0 --trust-proxy 10.0.0.0/8 \\
      --trust-proxy-reason 'the proxy asks for a certificate'
`

export const addCommand: AddCommand = (program, run) => {
  withOptions(program.command('dashboard').description('Shows queues and workers in a browser, until it is stopped.'))
    .addHelpText('after', EXAMPLES)
    .action(
      run(async (cli, given: Options) => {
        if (cli.options.cluster) {
          throw new CommandError(
            EXIT_CODES.usage,
            'on a cluster, mount the dashboard in an app, with a Cluster as its connection: see docs/dashboard.md',
          )
        }
        const { runDashboard } = await import('sluice-dashboard/program')
        // If Redis cannot be read now, the command fails here with the usual error.
        await cli.inspector().queues()
        const { redisUrl, readUrl, prefix, by } = cli.options
        return runDashboard({
          ...{ '--redis-url': redisUrl, '--read-url': readUrl, '--prefix': prefix, '--by': by },
          ...{ '--host': given.host, '--port': given.port, '--token-file': given.tokenFile },
          ...{ '--trust-proxy': given.trustProxy, '--trust-proxy-reason': given.trustProxyReason },
          ...{ '--title': given.title, '--log-level': given.logLevel },
          '--allow-actions': String(given.allowActions ?? false),
          '--show-data': String(given.showData ?? false),
        })
      }),
    )
}

function withOptions(command: Command): Command {
  return command
    .option('--host <address>', 'the IP address to listen on (default: 127.0.0.1)')
    .option('--port <port>', 'the port; 0: any free one (default: 3030)')
    .option('--token-file <file>', 'a JSON file of tokens: only requests with one are answered')
    .option('--allow-actions', 'allow changes')
    .option('--show-data', 'show the data of jobs')
    .option('--trust-proxy <list>', 'proxies in front of it, such as 10.0.0.0/8,loopback')
    .option('--trust-proxy-reason <text>', 'how the proxies keep others out, instead of a token file')
    .option('--title <text>', 'the title of the page (default: Sluice)')
    .option('--log-level <level>', 'fatal, error, warn, info, debug, trace or silent (default: info)')
}
