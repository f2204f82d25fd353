import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createRandom } from '../../workers/demo/outbox/random.ts'
import { useProcesses } from '../support/processes.ts'
import { audit, type Verdict } from '../torture/audit.ts'
import { inject, nextFault } from '../torture/faults.ts'
import { Field } from '../torture/field.ts'
import { SHAPE } from '../torture/shape.ts'

const processes = useProcesses()

/** How long faults go on; TORTURE_MINUTES. Afterwards everything has to come to rest. */
const MINUTES = Number(process.env.TORTURE_MINUTES ?? 1)
/** What repeats a sequence of faults; TORTURE_SEED. */
const SEED = Number(process.env.TORTURE_SEED ?? Date.now() % 1_000_000)
const REST_MS = 60_000

function report(verdict: Verdict, faults: ReadonlyMap<string, number>, stuck: number): string {
  const { accepted, unsure, lost, duplicated, needless, unexpected, recovered, excess } = verdict
  return (
    `torture, seed ${SEED}, ${MINUTES} min: ${[...faults].map(([kind, count]) => `${kind} ${count}`).join(', ')}\n` +
    `${accepted} accepted, ${unsure} unsure; lost ${lost.length}, duplicated ${duplicated.length} (without a lost lock ` +
    `${needless.length}), unexpected ${unexpected.length}, recovered ${recovered.length}; worst excess ` +
    `${Math.max(0, excess).toFixed(2)}, latest start ${verdict.latestMs.toFixed(0)} ms, over capacity ` +
    `${verdict.overCapacity.length}, stuck ${stuck}, mishaps ${verdict.mishaps.length}\n`
  )
}

test(
  `${MINUTES} min of random faults: nothing accepted is lost, nothing runs twice with its lock, the bound and the capacity hold`,
  async () => {
    process.stdout.write(`repeat these faults: npm run test:torture -- --minutes ${MINUTES} --seed ${SEED}\n`)
    const field = await Field.open(processes)
    const random = createRandom(SEED)
    const faults = new Map<string, number>()
    for (const end = performance.now() + MINUTES * 60_000; performance.now() < end; ) {
      const fault = nextFault(random)
      await inject(fault, field)
      faults.set(fault.kind, (faults.get(fault.kind) ?? 0) + 1)
      await sleep(fault.restMs)
    }
    await field.producers.end()
    await expect
      .poll(() => field.unfinished(), { timeout: REST_MS, interval: 200 })
      .toBe(0)
      .catch(() => {})
    const stuck = await field.unfinished()
    await field.workers.end()

    const verdict = audit(field.lines(), { ...SHAPE, rates: field.rates })
    process.stdout.write(report(verdict, faults, stuck))
    const { lost, needless, unexpected, overCapacity, mishaps } = verdict
    expect({ lost, needless, unexpected, overCapacity, mishaps, stuck }).toEqual({
      ...{ lost: [], needless: [], unexpected: [], overCapacity: [], mishaps: [], stuck: 0 },
    })
    expect([...field.producers.crashes, ...field.workers.crashes]).toEqual([])
    expect(verdict.accepted).toBeGreaterThan(MINUTES * 60)
    // Slots are told in whole microseconds.
    expect(verdict.excess).toBeLessThanOrEqual(0.001)
  },
  MINUTES * 60_000 + 240_000,
)
