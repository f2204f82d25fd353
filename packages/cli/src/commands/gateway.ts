import type { AddCommand } from '../cli.ts'
import { hostProgram } from '../run-program.ts'

/** `sluice gateway --help` prints the help of the gateway program, with its settings. */
export const addCommand: AddCommand = (program) => {
  const command = program
    .command('gateway')
    .description('Accepts jobs over HTTP for bounded queues, until it is stopped.')
    .option('--new-token <name>', 'print a new token and its entry for the token file, and exit')
  hostProgram(command, async () => {
    const { runGateway } = await import('sluice-gateway/program')
    const { newToken } = command.opts<{ newToken?: string }>()
    return (args, env) => runGateway(newToken === undefined ? args : ['--new-token', newToken, ...args], env)
  })
}
