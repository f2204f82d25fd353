import type { EventEmitter } from 'node:events'
import { Command } from 'commander'
import { plainText, VERSION } from 'sluice/internal'
import { EXIT_CODES } from './command-error.ts'
import { COMMANDS, type ListedCommand } from './command-list.ts'
import { addCompletionCommand } from './completion-scripts.ts'
import { addGlobalOptions } from './global-options.ts'
import { createRunner, report } from './runner.ts'

/**
 * Runs the command line until it ends.
 * @param args without the names of Node and of the program
 * @returns the exit code
 */
export async function runCommandLine(args: readonly string[]): Promise<number> {
  let exitCode: number = EXIT_CODES.done
  try {
    const program = await buildProgram(args, (code) => {
      exitCode = code
    })
    await program.parseAsync([...args], { from: 'user' })
    return exitCode
  } catch (error) {
    return report(error)
  }
}

/**
 * The program with only the requested command loaded; of the others only the names are known. So `--help` is fast.
 * @throws CommanderError for wrong arguments
 */
async function buildProgram(args: readonly string[], onEnd: (exitCode: number) => void): Promise<Command> {
  const wanted = wantedCommand(args)
  const program = await buildWith(({ name }) => name === wanted, onEnd)
  addCompletionCommand(program, buildWhole)
  const names = [...program.commands.map((command) => command.name()), 'help']
  // Commander would print the help of the program, and not say why.
  if (args[0] === 'help' && wanted !== undefined && !names.includes(wanted)) {
    program.error(`error: unknown command '${wanted}'`)
  }
  return program
}

/** The program with every command. */
async function buildWhole(): Promise<Command> {
  const program = await buildWith(
    () => true,
    () => undefined,
  )
  addCompletionCommand(program, buildWhole)
  return program
}

async function buildWith(
  isLoaded: (command: ListedCommand) => boolean,
  onEnd: (exitCode: number) => void,
): Promise<Command> {
  const program = newProgram()
  const run = createRunner(() => program.opts(), onEnd)
  for (const command of COMMANDS) {
    if (isLoaded(command)) (await command.load()).addCommand(program, run)
    else program.command(command.name)
    program.commands.find((added) => added.name() === command.name)?.summary(command.summary)
  }
  return program
}

export function newProgram(): Command {
  const program = new Command('sluice')
    .description('Traffic shaping for BullMQ: look at queues, change their shapes, run their programs.')
    .version(VERSION)
    .exitOverride()
    // Beside long names of subcommands there is less room than the usual 40.
    .configureHelp({ minWidthToWrap: 24 })
    .configureOutput({ outputError: (text, write) => write(`${asOneLine(text)}\n`) })
    .addHelpText('after', EXAMPLES)
  addGlobalOptions(program)
  // The help of the program has them in full.
  const names = program.options.map(({ long }) => long).filter((long) => long !== '--version')
  program.addHelpText('afterAll', ({ command }) => {
    if (command === program) return ''
    // Examples end with an empty line. Commander's types do not say that a command is an emitter.
    const gap = (command as unknown as EventEmitter).listenerCount('afterHelp') > 0 ? '' : '\n'
    return `${gap}Global options: ${names.join(' ')}`
  })
  return program
}

const EXAMPLES = `
Examples:
  $ sluice status
  $ sluice top emails
  $ sluice explain emails 4711
  $ sluice shape set emails --rate 20/s --for 1h --reason 'the provider is slow'

Exit codes: 0 done, 1 a check found something or it failed, 2 wrong usage,
3 Redis is unreachable or refuses, 4 no such queue, job or limit, 5 the queue
has no place, 130 interrupted.
`

/** The first word that is not an option; after `help`, the second. */
function wantedCommand(args: readonly string[]): string | undefined {
  const { operands } = newProgram().parseOptions([...args])
  return operands[0] === 'help' ? operands[1] : operands[0]
}

/** Commander prints "error: unknown option '--x'" and, on another line, a suggestion. */
function asOneLine(text: string): string {
  const lines = text
    .replace(/^error: /, '')
    .trim()
    .split('\n')
  // The message repeats arguments, which may come from an untrusted source.
  return `sluice: ${plainText(lines.map((line) => line.trim()).join(' '))}`
}
