import type { AddCommand } from '../cli.ts'
import { hostProgram, type ProgramRun } from '../run-program.ts'

interface ListedProgram {
  readonly name: string
  readonly description: string
  load(): Promise<ProgramRun>
}

const PROGRAMS: readonly ListedProgram[] = [
  {
    name: 'email',
    description: 'Sends the jobs of a queue as mail over SMTP.',
    async load() {
      const [{ runProgram }, { emailProgram }] = await Promise.all([
        import('sluice-workers'),
        import('sluice-workers/email'),
      ])
      return (args, env) => runProgram(emailProgram, args, env)
    },
  },
  {
    name: 'db-writes',
    description: 'Runs the jobs of a queue as configured PostgreSQL statements.',
    async load() {
      const [{ runProgram }, { databaseWritesProgram }] = await Promise.all([
        import('sluice-workers'),
        import('sluice-workers/db-writes'),
      ])
      return (args, env) => runProgram(databaseWritesProgram, args, env)
    },
  },
  {
    name: 'http',
    description: 'Sends the jobs of a queue as HTTP requests to configured targets.',
    async load() {
      const [{ runProgram }, { httpProgram }] = await Promise.all([
        import('sluice-workers'),
        import('sluice-workers/http'),
      ])
      return (args, env) => runProgram(httpProgram, args, env)
    },
  },
]

export const addCommand: AddCommand = (program) => {
  const worker = program
    .command('worker')
    .description('Runs a worker program until it is stopped. Its settings are environment variables.')
    .addHelpText(
      'after',
      `
Examples:
  $ sluice worker email --help        # its settings
  $ RATE=50/s SMTP_URL=smtp://localhost:1025 sluice worker email
`,
    )
  for (const { name, description, load } of PROGRAMS) {
    hostProgram(worker.command(name).description(description), load)
  }
}
