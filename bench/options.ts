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
machine, or count instructions, which are the same on a busy one. The exit code tells whether everything could be measured, not whether every figure was reached.

Examples:
  npm run bench
  npm run bench limits
  npm run bench feedback
  npm run bench gateway
  npm run bench groups
  npm run bench hints
  npm run bench instructions
  npm run bench scale -- --quick
  npm run bench scale-waiting scale-day
  npm run bench -- --quick
  npm run bench -- drain rate --json figures.json`

/**
 * Reads the command line.
 * @param figures the names of figures and groups, and the figures that each refers to
 */
export function readOptions(argv: readonly string[], figures: Figures): BenchOptions {
  const named = (name: string, before: readonly string[] = []) => [...before, ...figuresOf(name, figures)]
  const command = new Command('npm run bench --')
    .description('Measures what Sluice promises, side by side with BullMQ and with other rate limiters.')
    .argument('[figures...]', `measure only these of ${Object.keys(figures).join(', ')}`, named)
    .option('--only <figure>', 'the same, for one; may be given several times', named)
    .option('--quick', 'shorter and fewer runs, a few minutes: to see that everything works')
    .option('--json <file>', 'where to write everything that was measured (default: bench/results/<time>.json)')
    .option('--profile <folder>', 'write a CPU profile of each worker process')
    .addHelpText('after', AFTER)
    .parse([...argv], { from: 'user' })
  const { only = [], ...options } = command.opts<BenchOptions>()
  const names = [...((command.processedArgs[0] as readonly string[] | undefined) ?? []), ...only]
  return names.length === 0 ? options : { ...options, only: names }
}

type Figures = Readonly<Record<string, readonly string[]>>

function figuresOf(name: string, figures: Figures): readonly string[] {
  const found = Object.hasOwn(figures, name) ? figures[name] : undefined
  if (found) return found
  throw new InvalidArgumentError(`Expected one of ${Object.keys(figures).join(', ')}.`)
}
