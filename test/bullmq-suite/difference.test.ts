import { describe, expect, it } from 'vitest'
import { compareModes, confirmDifferences, type RunTests } from './difference.ts'
import { exceptionFor, staleExceptions } from './exceptions.ts'
import { type FileOutcome, OUTSIDE_TESTS, type TestState } from './outcome.ts'

function outcome(states: Record<string, TestState>, problems: string[] = []): FileOutcome {
  const tests = Object.entries(states).map(([title, state]) => ({ titles: ['Job', title], state, durationMs: 1 }))
  return { file: 'job.test.ts', durationMs: 1, tests, problems }
}

function differing(stock: FileOutcome, ours: FileOutcome): string[] {
  return compareModes('backend', [stock], [ours]).map(({ test }) => test)
}

describe('compareModes', () => {
  it('reports what fails with us and not on stock', () => {
    const stock = outcome({ adds: 'passed', fails: 'failed', waits: 'skipped' })
    const ours = outcome({ adds: 'failed', fails: 'failed', waits: 'failed' })
    expect(differing(stock, ours)).toEqual(['Job > adds', 'Job > waits'])
  })

  it('reports what stock passes and we skip or do not reach', () => {
    const stock = outcome({ adds: 'passed', ends: 'passed' })
    expect(differing(stock, outcome({ adds: 'skipped' }))).toEqual(['Job > adds', 'Job > ends'])
  })

  it('counts errors outside tests as one failure', () => {
    expect(differing(outcome({}), outcome({}, ['unhandled: Error']))).toEqual([OUTSIDE_TESTS])
    expect(differing(outcome({}, ['unhandled: Error']), outcome({}, ['unhandled: Error']))).toEqual([])
  })

  it('keeps tests of one name apart', () => {
    const twice = (second: TestState): FileOutcome => {
      const file = outcome({ adds: 'passed' })
      return { ...file, tests: [...file.tests, { titles: ['Job', 'adds'], state: second, durationMs: 1 }] }
    }
    expect(differing(twice('passed'), twice('failed'))).toEqual(['Job > adds #2'])
  })

  it('finds no fault with a test that passes with us only', () => {
    expect(differing(outcome({ adds: 'failed' }), outcome({ adds: 'passed' }))).toEqual([])
  })
})

describe('confirmDifferences', () => {
  const differences = compareModes('backend', [outcome({ adds: 'passed' })], [outcome({ adds: 'failed' })])

  function runner(states: { stock: TestState[]; ours: TestState[] }): { run: RunTests; calls: unknown[] } {
    const calls: unknown[] = []
    const run: RunTests = async (mode, file, only) => {
      calls.push([mode, file, only])
      const next = (mode === 'stock' ? states.stock : states.ours).shift()
      return outcome({ adds: next ?? 'skipped' })
    }
    return { run, calls }
  }

  it('keeps what fails with us and passes on stock every time', async () => {
    const { run, calls } = runner({ stock: ['passed', 'passed'], ours: ['failed', 'failed'] })
    const result = await confirmDifferences(differences, run)
    expect(result).toEqual({ confirmed: differences, unsteady: [] })
    expect(calls).toHaveLength(4)
    expect(calls[0]).toEqual(['stock', 'job.test.ts', [['Job', 'adds']]])
  })

  it.each([
    ['passes with us once', { stock: ['passed', 'passed'], ours: ['failed', 'passed'] }],
    ['fails on stock once', { stock: ['failed'], ours: ['failed'] }],
  ] as const)('calls a test unsteady that %s', async (_name, { stock, ours }) => {
    const { run } = runner({ stock: [...stock], ours: [...ours] })
    expect(await confirmDifferences(differences, run)).toEqual({ confirmed: [], unsteady: differences })
  })

  it('runs the whole file again for errors outside tests', async () => {
    const outside = compareModes('worker', [outcome({})], [outcome({}, ['unhandled: Error'])])
    const calls: unknown[] = []
    await confirmDifferences(outside, async (mode, file, only) => {
      calls.push([mode, file, only])
      return outcome({})
    })
    expect(calls).toEqual([
      ['stock', 'job.test.ts', undefined],
      ['worker', 'job.test.ts', undefined],
    ])
  })
})

describe('exceptions', () => {
  const exception = { file: 'job.test.ts', test: 'Job > adds', reason: 'reads the private mainLoop' }
  const compare = (mode: 'backend' | 'worker') =>
    compareModes(mode, [outcome({ adds: 'passed' })], [outcome({ adds: 'failed' })])

  it('excuse the worker, never the backend', () => {
    expect(compare('worker').map((difference) => exceptionFor(difference, [exception]))).toEqual([exception])
    expect(compare('backend').map((difference) => exceptionFor(difference, [exception]))).toEqual([undefined])
  })

  it('are needless when their test passes or has gone', () => {
    expect(staleExceptions([outcome({ adds: 'failed' })], [exception])).toEqual([])
    expect(staleExceptions([outcome({ adds: 'passed' })], [exception])).toEqual([exception])
    expect(staleExceptions([outcome({ removes: 'passed' })], [exception])).toEqual([exception])
    expect(staleExceptions([], [exception])).toEqual([])
  })
})
