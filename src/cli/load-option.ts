import { InvalidArgumentError } from 'commander'
import { parseRate } from '../rate.ts'
import type { LoadPart } from '../simulate/load.ts'
import { parseDuration } from './duration.ts'

const EXPECTED = "expected a load such as '5/s for 1d', or several: '5/s for 8h, 50/s for 10m'"

/**
 * Reads a load: rates, and for how long each holds.
 * @throws InvalidArgumentError, InvalidRateError
 */
export function parseLoad(text: string): LoadPart[] {
  return text.split(',').map((part) => {
    const [rate, duration, ...more] = part.split(/\sfor\s/).map((words) => words.trim())
    if (!rate || !duration || more.length > 0) throw new InvalidArgumentError(EXPECTED)
    parseRate(rate)
    return { rate, forMs: parseDuration(duration) }
  })
}

/**
 * Reads a cost: a number, or a range of whole ones.
 * @throws InvalidArgumentError
 */
export function parseCost(text: string): number | readonly [number, number] {
  const [, from, to] = /^(\d+(?:\.\d+)?)(?:-(\d+))?$/.exec(text.trim()) ?? []
  if (from === undefined) throw new InvalidArgumentError("expected a cost such as '2', or a range such as '1-5'")
  return to === undefined ? Number(from) : [Number(from), Number(to)]
}
