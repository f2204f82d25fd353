import type { Command } from 'commander'
import { CommandError } from './command-error.ts'
import type { GlobalOptions } from './global-options.ts'

/** Runs a program until it is stopped, and returns its exit code. */
export type ProgramRun = (args: readonly string[], env: NodeJS.ProcessEnv) => Promise<number>

/**
 * Turns a program of `src/programs` into a command. The program reads its settings from the environment, prints its own
 * help and handles signals itself.
 * @param load rejects with a CommandError if packages that the program needs are not installed; the help then says so
 */
export function hostProgram(command: Command, load: () => Promise<ProgramRun>): void {
  command
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .action(async () => {
      const run = await load().catch((error: unknown) => {
        if (!(error instanceof CommandError) || !command.args.some((arg) => HELP.includes(arg))) throw error
        return async () => printHelp(command, error.message)
      })
      process.exit(await run(command.args, environment(command.optsWithGlobals())))
    })
}

const HELP = ['--help', '-h']

/** Without its packages a program cannot list its settings. @returns the exit code */
function printHelp(command: Command, missing: string): number {
  const text = `${command.description()}\nIts settings are environment variables, listed here once its packages are there:\n${missing}`
  process.stdout.write(`Usage: ${pathOf(command)}\n\n${text}\n`)
  return 0
}

function pathOf(command: Command): string {
  const { parent } = command
  return parent ? `${pathOf(parent)} ${command.name()}` : command.name()
}

/** An option takes precedence over its variable. */
function environment({ redisUrl, prefix }: Partial<GlobalOptions>): NodeJS.ProcessEnv {
  return { ...process.env, ...(redisUrl && { REDIS_URL: redisUrl }), ...(prefix && { PREFIX: prefix }) }
}
