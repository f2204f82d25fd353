import { expect, test } from 'vitest'
import { useProcesses } from '../support/processes.ts'

/** How many workers are closed; WORKER_CLOSES. */
const CLOSES = Number(process.env.WORKER_CLOSES ?? 2000)
/** For the moments. */
const SEED = Number(process.env.SEED ?? Date.now() % 1_000_000)
const processes = useProcesses()

interface Found {
  readonly type: 'found'
  readonly unhandled: readonly string[]
  readonly hung: readonly string[]
}

test(
  `${CLOSES} workers close while their connections are cut, silent, slow or refused: in time, and nothing is rejected unhandled`,
  async () => {
    process.stdout.write(`SEED=${SEED}\n`)
    const script = new URL('./programs/closing-workers.ts', import.meta.url)
    const program = processes.fork<Found>(script, { args: [String(CLOSES), String(SEED)] })
    const { unhandled, hung } = await program.waitFor('found', undefined, CLOSES * 1000)
    process.stdout.write(`closes that took longer than 30 s: ${hung.join(', ') || 'none'}\n`)
    expect(unhandled).toEqual([])
    expect(hung).toEqual([])
    expect(await program.exited).toEqual({ code: 0, signal: null })
  },
  CLOSES * 1000,
)
