import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createRandom } from '../../workers/demo/outbox/random.ts'
import { useProcesses } from '../support/processes.ts'
import { audit, type Verdict } from '../torture/audit.ts'
import { inject, nextFault } from '../torture/faults.ts'
import { Field } from '../torture/field.ts'
import { olderVersion } from '../torture/older-version.ts'
import { type Growth, growthsOf } from '../torture/samples.ts'
import { SHAPE } from '../torture/shape.ts'

const processes = useProcesses()

/** How long faults go on; TORTURE_MINUTES. Afterwards everything has to come to rest. */
const MINUTES = Number(process.env.TORTURE_MINUTES ?? 1)
/** What repeats a sequence of faults; TORTURE_SEED. */
const SEED = Number(process.env.TORTURE_SEED ?? Date.now() % 1_000_000)
/** The version that half of the processes run; TORTURE_BESIDE. */
const BESIDE = process.env.TORTURE_BESIDE
/** Where what all processes wrote stays, and when which fault was; TORTURE_KEEP. */
const KEEP = process.env.TORTURE_KEEP
const REST_MS = 60_000
/** No fault takes so long, and a process that was told to end has ended. */
const FAULT_MS = 240_000
/** So many faults are told where one goes wrong. */
const TOLD = 5
/** In a shorter run too little time is left, after everything has warmed up, to see whether something grows. */
const MINUTES_TO_GROW = 3
const KILLS = ['worker killed', 'producer killed', 'Redis killed', 'stale replica promoted']

const mb = (bytes: number) => (bytes / 1024 ** 2).toFixed(1)

interface Outcome {
  readonly verdict: Verdict
  readonly faults: ReadonlyMap<string, number>
  readonly losses: number
  readonly stuck: number
  readonly keysLeft: number
  readonly growths: readonly Growth[]
}

function report({ verdict, faults, losses, stuck, keysLeft, growths }: Outcome, commit: string | undefined): string {
  const { accepted, unsure, lost, forgotten, duplicated, needless, unexpected, recovered, worst } = verdict
  const kills = KILLS.reduce((sum, kind) => sum + (faults.get(kind) ?? 0), 0)
  const grown = growths.map(
    ({ heapBytes, handles, timers }) => `${mb(heapBytes)} MB, ${handles} handles, ${timers} timers`,
  )
  return (
    `torture for ${MINUTES} min, ${commit ? `beside ${commit}` : 'without an older version'}: ` +
    `${[...faults].map(([kind, count]) => `${kind} ${count}`).join(', ')}\n` +
    `${kills} kills survived; ${accepted} accepted, ${unsure} unsure, ${forgotten.length} lost by Redis itself; started ` +
    `again without a lost lock ${needless.length}, worst excess ${Math.max(0, worst.excess).toFixed(2)}, latest start ` +
    `${verdict.latestMs.toFixed(0)} ms, over capacity ${verdict.overCapacity.length}, stuck ${stuck}, keys left ${keysLeft}, ` +
    `mishaps ${verdict.mishaps.length}, losses of data noticed ${losses}\n` +
    `growth of processes that lived all the while: ${grown.join('; ')}\n` +
    `lost ${lost.length}, duplicated ${duplicated.length}, unexpected ${unexpected.length}, recovered ` +
    `${recovered.length}; again: npm run test:torture -- --minutes ${MINUTES} --seed ${SEED}` +
    `${commit ? ` --beside ${commit}` : ''}\n`
  )
}

async function within<T>(limitMs: number, promise: Promise<T>, what: string): Promise<T> {
  const giveUp = new AbortController()
  const late = sleep(limitMs, undefined, { signal: giveUp.signal }).then(() => {
    throw new Error(`not over after ${limitMs} ms`)
  })
  try {
    return await Promise.race([promise, late])
  } catch (error) {
    throw new Error(`${what}: ${error}`, { cause: error })
  } finally {
    giveUp.abort()
  }
}

/** Injects what the seed says, and resolves to how often each fault was. */
async function torture(field: Field): Promise<Map<string, number>> {
  const random = createRandom(SEED)
  const faults = new Map<string, number>()
  const all: string[] = []
  for (const end = performance.now() + MINUTES * 60_000; performance.now() < end; ) {
    const fault = nextFault(random)
    all.push(JSON.stringify({ at: new Date(), ...fault }))
    field.keep('faults', all)
    await within(FAULT_MS, inject(fault, field), `the last of ${all.slice(-TOLD).join('\n')}`)
    faults.set(fault.kind, (faults.get(fault.kind) ?? 0) + 1)
    await sleep(fault.restMs)
  }
  return faults
}

/** Ends everything, and resolves to how many jobs and keys are left. */
async function comeToRest(field: Field): Promise<{ stuck: number; keysLeft: number }> {
  await field.endProducers()
  await expect
    .poll(() => field.unfinished(), { timeout: REST_MS, interval: 200 })
    .toBe(0)
    .catch(() => {})
  const stuck = await field.unfinished()
  await field.endWorkers()
  await field.queue.obliterate({ force: true })
  return { stuck, keysLeft: await field.admin.dbsize() }
}

test(
  `${MINUTES} min of random faults: nothing accepted is lost, nothing runs twice with its lock, the bound and the capacity hold`,
  async () => {
    const older = await olderVersion(BESIDE)
    process.stdout.write(`repeat these faults: npm run test:torture -- --minutes ${MINUTES} --seed ${SEED}\n`)
    const field = await Field.open(processes, { older, keep: KEEP })
    const faults = await torture(field)
    const { stuck, keysLeft } = await within(REST_MS + FAULT_MS, comeToRest(field), 'the end')

    const lines = field.lines()
    field.keep(
      'rates',
      field.rates.map((change) => JSON.stringify(change)),
    )
    const verdict = audit(lines, { ...SHAPE, rates: field.rates, forgotten: field.forgotten, setBack: field.setBack })
    const growths = growthsOf(lines)
    const losses = lines.filter((line) => line === 'loss').length
    process.stdout.write(report({ verdict, faults, losses, stuck, keysLeft, growths }, older?.commit))
    const { lost, needless, unexpected, overCapacity, mishaps, worst } = verdict
    expect({ lost, needless, unexpected, overCapacity, mishaps, stuck, keysLeft }).toEqual({
      ...{ lost: [], needless: [], unexpected: [], overCapacity: [], mishaps: [], stuck: 0, keysLeft: 0 },
    })
    expect(field.crashes).toEqual([])
    expect(verdict.accepted).toBeGreaterThan(MINUTES * 60)
    // Slots are told in whole microseconds.
    expect(verdict.worst.excess, `from ${worst.fromUs} to ${worst.untilUs} µs`).toBeLessThanOrEqual(0.001)
    if (MINUTES >= MINUTES_TO_GROW) expect(growths.filter(({ isFlat }) => !isFlat)).toEqual([])
  },
  MINUTES * 60_000 + 2 * FAULT_MS,
)
