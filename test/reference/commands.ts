import { type Argument, Command, Help, type Option } from 'commander'
import { COMMANDS } from '../../src/cli/command-list.ts'
import { addGlobalOptions } from '../../src/cli/global-options.ts'
import { table } from './tables.ts'

export function globalOptionsTable(): string {
  const program = new Command('sluice')
  addGlobalOptions(program)
  return optionsTable(program.options)
}

const HEAD = `# Commands

Every command with its arguments and options, as \`sluice COMMAND --help\` prints them. [The command line](cli.md) says what the commands do, and has the [options that all of them take](cli.md#options-of-every-command).

<!-- Written by npm run reference from the commands themselves. -->
`

/** The whole page of the commands. */
export async function commandsPage(): Promise<string> {
  const program = new Command('sluice')
  for (const { load } of COMMANDS) (await load())(program, () => () => Promise.resolve())
  return [HEAD, ...program.commands.flatMap((command) => sectionsOf(command, []))].join('\n')
}

function sectionsOf(command: Command, parents: readonly string[]): string[] {
  const path = [...parents, command.name()]
  const words = path.join(' ')
  const { commands, options, registeredArguments } = command
  const own = commands.length > 0 ? [] : [`\`\`\`\nsluice ${words} ${command.usage()}\n\`\`\`\n`]
  const args = registeredArguments.length > 0 ? [`${argumentsTable(registeredArguments)}\n`] : []
  const named = options.length > 0 ? [`${optionsTable(options)}\n`] : []
  const section = [`${'#'.repeat(path.length + 1)} ${words}\n`, `${command.description()}\n`, ...own, ...args, ...named]
  return [...section, ...commands.flatMap((one) => sectionsOf(one, path))]
}

function argumentsTable(args: readonly Argument[]): string {
  return table(
    ['argument', 'meaning'],
    args.map((argument) => [`\`${argument.name()}\``, escaped(argument.description)]),
  )
}

function optionsTable(options: readonly Option[]): string {
  const help = new Help()
  return table(
    ['option', 'meaning'],
    options.map((option) => [`\`${option.flags}\``, escaped(help.optionDescription(option))]),
  )
}

function escaped(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;').replaceAll(/\s+/g, ' ')
}
