import type { Command } from 'commander'
import type { GlobalOptions } from './global-options.ts'

/** Runs a program until it is told to stop, and returns its exit code. */
export type ProgramRun = (args: readonly string[], env: NodeJS.ProcessEnv) => Promise<number>

/**
 * Makes a command of a program of `src/programs`, which reads its own settings from the environment, says its own help and
 * hears signals itself.
 * @param load fails where a package that it needs is not installed
 */
export function hostProgram(command: Command, load: () => Promise<ProgramRun>): void {
  command
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .action(async () => {
      const run = await load()
      process.exit(await run(command.args, environment(command.optsWithGlobals())))
    })
}

/** What was given as an option stands in for its variable. */
function environment({ redisUrl, prefix }: Partial<GlobalOptions>): NodeJS.ProcessEnv {
  return { ...process.env, ...(redisUrl && { REDIS_URL: redisUrl }), ...(prefix && { PREFIX: prefix }) }
}
