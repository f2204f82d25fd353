import { Option } from 'commander'
import { plainText, ROLES, type Role } from 'sluice/internal'
import { parseNonEmpty, parseQueueName } from '../arguments.ts'
import type { AddCommand, Cli } from '../cli.ts'
import { EXIT_CODES } from '../command-error.ts'
import { diagnose } from '../doctor/diagnose.ts'
import { countLevels, reportText } from '../doctor/report.ts'

interface DoctorOptions {
  readonly role: Role
  readonly limitsPrefix: string
  readonly strict?: boolean
}

export const addCommand: AddCommand = (program, run) => {
  program
    .command('doctor')
    .description(
      "Checks Redis, its user's rights, queues and workers, and says what to do. It runs a job on a temporary " +
        'queue. Exits with 1 if it finds an error.',
    )
    .argument('[queue...]', 'queues (default: all that have a shape)', collectQueues)
    .addOption(
      new Option('--role <role>', 'the role whose rights the user needs').choices([...ROLES]).default('worker'),
    )
    .option('--limits-prefix <text>', 'prefix of the limits', parseNonEmpty, 'sluice')
    .option('--strict', 'exit with 1 for warnings too')
    .addHelpText(
      'after',
      `
Examples:
  $ sluice doctor emails --strict
  $ sluice doctor --role producer --redis-url redis://producer:secret@redis.test
  $ sluice doctor --json | jq '.findings[] | select(.level != "ok")'
`,
    )
    .action(run(examine))
}

function collectQueues(text: string, before: readonly string[] | undefined): string[] {
  return [...(before ?? []), parseQueueName(text)]
}

async function examine(cli: Cli, queues: readonly string[] = [], options: DoctorOptions): Promise<number> {
  const { role, limitsPrefix, strict } = options
  const { prefix } = cli.options
  const client = await cli.client()
  const findings = await diagnose({ client, inspector: cli.inspector(), prefix, limitsPrefix, role, queues })
  const counts = countLevels(findings)
  const isFull = queues.length > 0
  cli.print({ counts, findings }, () => reportText(findings, { colors: cli.colors, plain: plainText, isFull }))
  return counts.error > 0 || (strict && counts.warning > 0) ? EXIT_CODES.failed : EXIT_CODES.done
}
