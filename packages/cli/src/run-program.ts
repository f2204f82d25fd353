import type { Command } from 'commander'
import type { GlobalOptions } from './global-options.ts'

/** Runs a program until it is stopped, and returns its exit code. */
export type ProgramRun = (args: readonly string[], env: NodeJS.ProcessEnv) => Promise<number>

/**
 * Turns a program of another package into a command. The program reads its settings from the environment, prints its own
 * help and handles signals itself.
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

/** An option takes precedence over its variable. */
function environment({ redisUrl, prefix }: Partial<GlobalOptions>): NodeJS.ProcessEnv {
  return { ...process.env, ...(redisUrl && { REDIS_URL: redisUrl }), ...(prefix && { PREFIX: prefix }) }
}
