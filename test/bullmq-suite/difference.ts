import { type FileOutcome, type Mode, type NamedState, statesByName, type TestState } from './outcome.ts'

/** The modes that are compared with stock. */
export type ShapedMode = Exclude<Mode, 'stock'>

/** A test that does not fare with us as it does on stock BullMQ. */
export interface Difference {
  mode: ShapedMode
  file: string
  test: string
  stock: TestState | 'missing'
  ours: TestState | 'missing'
  /** Missing for errors outside tests, which only a run of the whole file can show again. */
  titles?: string[]
}

/** Runs a file in a mode: the tests with these titles, or all of them. */
export type RunTests = (mode: Mode, file: string, only?: readonly (readonly string[])[]) => Promise<FileOutcome>

/** How often a test that differs is run again, in both modes, before it is called a difference. */
const CONFIRMATIONS = 2

function isWorse(stock: TestState | 'missing', ours: TestState | 'missing'): boolean {
  // A test that stock passes and we do not reach, or skip, is as bad as one that fails.
  return stock === 'passed' ? ours !== 'passed' : stock !== 'failed' && ours === 'failed'
}

function compareFile(mode: ShapedMode, stock: FileOutcome, ours: FileOutcome): Difference[] {
  const stockStates = statesByName(stock)
  const ourStates = statesByName(ours)
  return [...new Set([...stockStates.keys(), ...ourStates.keys()])].flatMap((test) => {
    const before: NamedState | undefined = stockStates.get(test)
    const after: NamedState | undefined = ourStates.get(test)
    const states = { stock: before?.state ?? 'missing', ours: after?.state ?? 'missing' } as const
    const titles = before?.titles ?? after?.titles
    if (!isWorse(states.stock, states.ours)) return []
    return [{ mode, file: stock.file, test, ...states, ...(titles ? { titles } : {}) }]
  })
}

/** Failures of ours minus failures of stock, over the files that both have run. */
export function compareModes(
  mode: ShapedMode,
  stock: readonly FileOutcome[],
  ours: readonly FileOutcome[],
): Difference[] {
  return ours.flatMap((outcome) => {
    const reference = stock.find(({ file }) => file === outcome.file)
    return reference ? compareFile(mode, reference, outcome) : []
  })
}

/** Differences of one file in one mode. */
interface DifferenceGroup {
  mode: ShapedMode
  file: string
  differences: Difference[]
}

function groupByRun(differences: readonly Difference[]): DifferenceGroup[] {
  const groups: DifferenceGroup[] = []
  for (const difference of differences) {
    const { mode, file } = difference
    const group = groups.find((candidate) => candidate.mode === mode && candidate.file === file)
    if (group) group.differences.push(difference)
    else groups.push({ mode, file, differences: [difference] })
  }
  return groups
}

async function confirmGroup({ mode, file, differences }: DifferenceGroup, run: RunTests): Promise<Difference[]> {
  const titles = differences.flatMap((difference) => (difference.titles ? [difference.titles] : []))
  const only = titles.length === differences.length ? titles : undefined
  const again = compareFile(mode, await run('stock', file, only), await run(mode, file, only))
  return differences.filter(({ test }) => again.some((difference) => difference.test === test))
}

/**
 * Runs the tests that differ again, in both modes. Those that differ every time are confirmed; the others are
 * unsteady: they passed with us, or failed on stock, at least once.
 */
export async function confirmDifferences(
  differences: readonly Difference[],
  run: RunTests,
): Promise<{ confirmed: Difference[]; unsteady: Difference[] }> {
  let confirmed = [...differences]
  for (let round = 0; round < CONFIRMATIONS && confirmed.length > 0; round++) {
    const remaining: Difference[] = []
    for (const group of groupByRun(confirmed)) remaining.push(...(await confirmGroup(group, run)))
    confirmed = remaining
  }
  return { confirmed, unsteady: differences.filter((difference) => !confirmed.includes(difference)) }
}
