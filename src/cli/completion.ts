import { Argument, type Command } from 'commander'
import { completionScript, SHELLS, type Shell } from './completion-scripts.ts'
import { placesOf } from './completion-tree.ts'

/** @param loadAll builds the program with every command */
export function addCompletionCommand(program: Command, loadAll: () => Promise<Command>): void {
  program
    .command('completion')
    .summary('completions for bash, zsh and fish')
    .description('Prints the completions of a shell, generated from its commands.')
    .addArgument(new Argument('<shell>', 'the shell').choices(SHELLS))
    .addHelpText('after', EXAMPLES)
    .action(async (shell: Shell) => {
      process.stdout.write(`${completionScript(shell, placesOf(await loadAll()))}\n`)
    })
}

const EXAMPLES = `
Examples:
  $ eval "$(sluice completion bash)"
  $ sluice completion zsh > "\${fpath[1]}/_sluice"
  $ sluice completion fish > ~/.config/fish/completions/sluice.fish
`
