/** A mark of an axis. */
export interface Mark {
  readonly value: number
  readonly label: string
}

const TIME_UNITS: readonly (readonly [seconds: number, label: string])[] = [
  [86_400, 'd'],
  [3600, 'h'],
  [60, 'min'],
  [1, 's'],
  [0.001, 'ms'],
]
/** Steps for units of time that are marked at whole multiples. */
const TIME_STEPS: Readonly<Record<string, readonly number[]>> = { h: [1, 2, 3, 6, 12], min: [1, 2, 5, 10, 15, 30] }

/** Marks from 0 to at most `most`, at round numbers. */
export function countMarks(most: number, wanted = 5): Mark[] {
  return marks(most, roundStep(most / wanted), (value) => value.toLocaleString('en'))
}

/** Marks of times, s, in a suitable unit. */
export function timeMarks(most: number, wanted = 6): Mark[] {
  const [unit, label] = TIME_UNITS.find(([seconds]) => most >= seconds * 2) ?? [0.001, 'ms']
  const least = most / unit / wanted
  const step = TIME_STEPS[label]?.find((one) => one >= least) ?? roundStep(least)
  return marks(most / unit, step, (value) => (value === 0 ? '0' : `${Number(value.toPrecision(6))} ${label}`)).map(
    (mark) => ({ ...mark, value: mark.value * unit }),
  )
}

/** The smallest of 1, 2 or 5 times a power of ten that is not less than `least`. */
function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least))
  const times = [1, 2, 5, 10].find((one) => one * power >= least * 0.999_999) as number
  return times * power
}

function marks(most: number, step: number, label: (value: number) => string): Mark[] {
  const count = Math.floor(most / step + 1e-9)
  return Array.from({ length: count + 1 }, (_, i) => {
    const value = Number((i * step).toPrecision(12))
    return { value, label: label(value) }
  })
}
