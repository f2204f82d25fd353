import type { EventEmitter } from 'node:events'
import { type Argument, Command, Help, type Option } from 'commander'
import { COMMANDS } from '../../packages/cli/src/command-list.ts'
import { addGlobalOptions } from '../../packages/cli/src/global-options.ts'
import { table } from './tables.ts'

export function globalOptionsTable(): string {
  const program = new Command('sluice')
  addGlobalOptions(program)
  return optionsTable(program.options)
}

const HEAD = `# Commands

After this page you know every command with its options, as \`sluice COMMAND --help\` prints them. \`--reason\` says why, for the history. [All take these options too](cli.md#options-of-every-command).

<!-- Written by npm run reference from the commands themselves. -->
`

/** The whole page of the commands. */
export async function commandsPage(): Promise<string> {
  const program = new Command('sluice')
  for (const { load } of COMMANDS) (await load())(program, () => () => Promise.resolve())
  const overview = table(
    ['command', 'what it does'],
    COMMANDS.map(({ name, summary }) => [`[${name}](#${name})`, summary]),
  )
  return [HEAD, `${overview}\n`, ...program.commands.flatMap((command) => sectionsOf(command, []))].join('\n')
}

function sectionsOf(command: Command, parents: readonly string[]): string[] {
  const path = [...parents, command.name()]
  const words = path.join(' ')
  const { commands } = command
  const required = command.options.filter(({ mandatory }) => mandatory).map(({ flags }) => flags)
  const options = command.options.filter(({ description }) => description !== REASON)
  const usage = command.usage().replace('[options]', ['[options]', ...required].join(' '))
  const own = commands.length > 0 ? [] : [`\`\`\`\n${`sluice ${words} ${usage}`.trim()}\n\`\`\`\n`]
  const args = command.registeredArguments.filter(({ description }) => !EVIDENT.includes(description))
  const named = args.length + options.length > 0 ? [`${optionsTable(options, args)}\n`] : []
  const section = [`${'#'.repeat(path.length + 1)} ${words}\n`, `${command.description()}\n`, ...own, ...named]
  return [...section, ...examplesOf(command), ...commands.flatMap((one) => sectionsOf(one, path))]
}

/** The page explains it once, and the usage names it where it is required. */
const REASON = 'why, for the history (required)'

/** Arguments whose names say as much. */
const EVIDENT = [
  ...['the queue', 'the id of the job', 'the id of the group', 'the id of the letter', 'the ids of jobs'],
  ...['the name of the limit', 'the old queue', 'the new queue', 'the queue of dead letters', 'the ids of letters'],
]

function optionsTable(options: readonly Option[], args: readonly Argument[] = []): string {
  const help = new Help()
  return table(
    ['option', 'meaning'],
    [
      ...args.map((argument) => [`\`${argument.name()}\``, escaped(argument.description)]),
      ...options.map((option) => [`\`${option.flags}\``, escaped(help.optionDescription(option))]),
    ],
  )
}

/** What its help shows after the options. */
function examplesOf(command: Command): string[] {
  let text = ''
  // It is an emitter, which its types do not say.
  const emitter = command as unknown as EventEmitter
  emitter.emit('afterHelp', { error: false, command, write: (part: string) => (text += part) })
  return text.trim() === '' ? [] : [`\`\`\`\n${text.trim()}\n\`\`\`\n`]
}

function escaped(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;').replaceAll(/\s+/g, ' ')
}
