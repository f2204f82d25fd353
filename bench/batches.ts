import { atLeast, atMost, compared, rounds } from './harness/compare.ts'
import { type Figure, inTurn } from './harness/figure.ts'
import { drainOnce } from './harness/workers.ts'

const SIZE = 50
/** Jobs that a process has drained before it is measured, in each way. */
const WARM_UP_JOBS = 20_000
const CASES = [
  { concurrency: 1, jobs: 10_000, asked: 2, calls: 0.1 },
  { concurrency: 10, jobs: 20_000, asked: undefined, calls: 0.5 },
] as const

const WAYS = { single: {}, batches: { batch: { size: SIZE } } } as const
const NAMES = ['single', 'batches'] as const

/** What a batch saves where the processor does nothing: the rest is what it is for. */
export const batches: Figure = {
  name: 'batches',
  title:
    `Drain without a rate in batches of ${SIZE} over single jobs at the same concurrency, with an empty processor: median of ` +
    'interleaved rounds, the first discarded, and their spread',
  headings: ['', 'asked', 'reached', 'ok', 'single jobs'],
  run: async (bench) => {
    for (const name of NAMES) await drainOnce(bench, 'sluice', { concurrency: 10, jobs: WARM_UP_JOBS, ...WAYS[name] })
    return inTurn(CASES, async ({ concurrency, jobs, asked, calls }) => {
      const measured = await rounds(bench.quick, NAMES, (name) =>
        drainOnce(bench, 'sluice', { concurrency, jobs, ...WAYS[name] }),
      )
      const ways = { ours: 'batches', over: ['single'] } as const
      const what = `${concurrency} at once`
      return [
        compared(`${what}: throughput`, measured, { ...ways, asked: asked && atLeast(asked) }),
        compared(`${what}: commands per job`, measured, { ...ways, of: (cost) => cost.calls, asked: atMost(calls) }),
      ]
    })
  },
}
