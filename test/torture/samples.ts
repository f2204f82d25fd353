import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** How often a witness looks at itself. */
const EVERY_MS = 1000

/**
 * A witness is a process that no fault ends: what it holds is to stay the same however many faults it lives through.
 * Once a second it notes its heap without garbage, its timers, and all else that keeps it alive: connections.
 */
export function noteSamples(note: (...words: unknown[]) => void): void {
  setFlagsFromString('--expose-gc')
  const collectGarbage = runInNewContext('gc') as () => void
  setInterval(() => {
    collectGarbage()
    const resources = process.getActiveResourcesInfo()
    const timers = resources.filter((kind) => kind === 'Timeout').length
    note('sample', process.pid, process.memoryUsage().heapUsed, timers, resources.length - timers)
  }, EVERY_MS).unref()
}

/** What a process may hold more in the last third of its samples than in the middle one, in the median. */
const MAX_GROWTH = { heapBytes: 4 * 1024 * 1024, timers: 20, handles: 2 } as const

type Held = Readonly<Record<keyof typeof MAX_GROWTH, number>>

/** By how much a process grew, and whether that is more than chance. */
export interface Growth extends Held {
  readonly pid: string
  readonly isFlat: boolean
}

/** @param lines of all processes; lines of other kinds are left out */
export function growthsOf(lines: readonly string[]): Growth[] {
  const byProcess = new Map<string, Held[]>()
  for (const line of lines.filter((line) => line.startsWith('sample '))) {
    const [, pid = '', heapBytes, timers, handles] = line.split(' ')
    const samples = byProcess.get(pid) ?? []
    byProcess.set(pid, samples)
    samples.push({ heapBytes: Number(heapBytes), timers: Number(timers), handles: Number(handles) })
  }
  return [...byProcess].map(([pid, held]) => {
    const third = Math.floor(held.length / 3)
    const grown = (field: keyof Held) =>
      medianOf(held.slice(-third), field) - medianOf(held.slice(third, 2 * third), field)
    const growth = { heapBytes: grown('heapBytes'), timers: grown('timers'), handles: grown('handles') }
    const fields = Object.keys(MAX_GROWTH) as (keyof Held)[]
    return { pid, ...growth, isFlat: third > 0 && fields.every((field) => growth[field] <= MAX_GROWTH[field]) }
  })
}

function medianOf(samples: readonly Held[], field: keyof Held): number {
  const sorted = samples.map((sample) => sample[field]).toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}
