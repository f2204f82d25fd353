import { Command, InvalidArgumentError } from 'commander'

export interface BenchOptions {
  /** Names of figures; undefined: all. */
  readonly only?: readonly string[]
  readonly quick?: true
  readonly json?: string
  readonly profile?: string
}

const AFTER = `
Starts a Redis and worker processes of its own, and stops them. Figures are wall-clock measurements: run them on a quiet
machine. The exit code tells whether everything could be measured, not whether every figure was reached.

Examples:
  npm run bench
  npm run bench -- --quick
  npm run bench -- --only drain --only rate --json figures.json`

/** Reads the command line. */
export function readOptions(argv: readonly string[], figures: readonly string[]): BenchOptions {
  return new Command('npm run bench --')
    .description('Measures what Sluice promises, side by side with the Worker, Queue and limiter of BullMQ.')
    .option(
      '--only <figure>',
      `measure only this one of ${figures.join(', ')}; may be given several times`,
      (name: string, before: readonly string[] = []) => [...before, checked(name, figures)],
    )
    .option('--quick', 'shorter and fewer runs, under two minutes: to see that everything works')
    .option('--json <file>', 'where to write everything that was measured (default: bench/results/<time>.json)')
    .option('--profile <folder>', 'write a CPU profile of each worker process')
    .addHelpText('after', AFTER)
    .parse([...argv], { from: 'user' })
    .opts<BenchOptions>()
}

function checked(name: string, figures: readonly string[]): string {
  if (figures.includes(name)) return name
  throw new InvalidArgumentError(`Expected one of ${figures.join(', ')}.`)
}
