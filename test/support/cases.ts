/** `npm test` tries a tenth of the cases of long models, `npm run test:all` and CI all of them. */
const SHARE = 10
// Vitest's `--mode`.
const isAll = process.env.MODE !== 'quick'

/**
 * How many random cases a model tries.
 * @param variable of the environment, whose number counts instead
 */
export function caseCount(all: number, variable = ''): number {
  return Number(process.env[variable] ?? (isAll ? all : Math.ceil(all / SHARE)))
}

/** Of scenarios that take seconds each. */
export function someOf<T>(all: readonly T[]): readonly T[] {
  return isAll ? all : all.filter((_, i) => i % SHARE === 0)
}
