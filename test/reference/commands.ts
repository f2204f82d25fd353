import type { EventEmitter } from 'node:events'
import { Command, Help } from 'commander'
import { COMMANDS } from '../../packages/cli/src/command-list.ts'
import { addGlobalOptions } from '../../packages/cli/src/global-options.ts'
import { alignedText } from './tables.ts'

export function globalOptionsText(): string {
  const program = new Command('sluice')
  addGlobalOptions(program)
  return `\`\`\`\n${optionsText(program)}\n\`\`\``
}

const HEAD = `# Commands

Look up a command and its options. \`sluice COMMAND --help\` prints this, plus examples. [Some options](cli.md#options-of-every-command) apply to every command. \`--reason\` is kept in the history; \`limits\` and \`doctor\` also take \`--limits-prefix\` (default: sluice). [Worker programs](workers.md) and the [gateway](gateway.md) are configured with environment variables.

<!-- Written by npm run reference from the commands themselves. -->
`

/** The whole page of the commands. */
export async function commandsPage(): Promise<string> {
  const program = new Command('sluice')
  for (const { load } of COMMANDS) (await load()).addCommand(program, () => () => Promise.resolve())
  return [HEAD, ...program.commands.flatMap((command) => sectionsOf(command, []))].join('\n')
}

function sectionsOf(command: Command, parents: readonly string[]): string[] {
  const path = [...parents, command.name()]
  const words = path.join(' ')
  const { commands } = command
  const required = command.options.filter(({ mandatory }) => mandatory).map(({ flags }) => flags)
  const usage = [...required, command.usage().replace('[options]', '').trim()].join(' ').trim()
  const options = optionsText(command)
  // The heading of a command that takes nothing says as much.
  const own = commands.length > 0 || usage + options === '' ? [] : [`sluice ${words} ${usage}`.trim()]
  const block = [...own, options, notesOf(command)].filter((part) => part !== '').join('\n\n')
  const section = [`${'#'.repeat(path.length + 1)} ${words}\n`]
  // That of a group of commands only sums them up.
  if (commands.length === 0) section.push(`${command.description()}\n`)
  if (block !== '') section.push(`\`\`\`\n${block}\n\`\`\`\n`)
  return [...section, ...commands.flatMap((one) => sectionsOf(one, path))]
}

/** Options that the page explains once; the usage names those that are required. */
const EXPLAINED = ['why, for the history (required)', 'prefix of the limits']

/** Arguments whose names say as much. */
const EVIDENT = [
  ...['the queue', 'the id of the job', 'the id of the group', 'the id of the letter', 'the ids of jobs'],
  ...[
    'one queue, in detail',
    'only those of this limit',
    'the key, in one or several words',
    'the name of the limit',
    'the old queue',
    'the new queue',
    'the queue of dead letters',
    'the ids of letters',
  ],
]

/** Arguments and options as its help aligns them. */
function optionsText(command: Command): string {
  const help = new Help()
  return alignedText([
    ...command.registeredArguments
      .filter(({ description }) => !EVIDENT.includes(description))
      .map((argument) => [argument.name(), help.argumentDescription(argument)] as const),
    ...command.options
      .filter(({ description }) => !EXPLAINED.includes(description))
      .map((option) => [option.flags, help.optionDescription(option)] as const),
  ])
}

/** What its help says after the options, without examples. */
function notesOf(command: Command): string {
  let text = ''
  // It is an emitter, which its types do not say.
  const emitter = command as unknown as EventEmitter
  emitter.emit('afterHelp', { error: false, command, write: (part: string) => (text += part) })
  const [notes = ''] = text.split(/^Examples?:$/m)
  return notes.trim()
}
