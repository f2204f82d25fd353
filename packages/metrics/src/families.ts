import type { Merge, Point } from './points.ts'

/** A metric, independent of what its numbers are read from. */
export interface Family<From> {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly unit: string
  readonly help: string
  /** Its labels and the possible values of each, besides `queue`. */
  readonly labels: Readonly<Record<string, readonly string[]>>
  /** For queues that share the label `other`. Default: `sum`. */
  readonly merge?: Merge
  readonly read: (from: From) => readonly Point[]
}

/** A number without labels of its own; no point where it is unknown. */
export function one(value: number | undefined): Point[] {
  return value === undefined ? [] : [{ labels: {}, value }]
}

/** A number for each value of a label. */
export function each(label: string, values: Readonly<Record<string, number | undefined>>): Point[] {
  // A loop, since it is called a dozen times for each of very many queues.
  const points: Point[] = []
  for (const name in values) {
    const value = values[name]
    if (value !== undefined) points.push({ labels: { [label]: name }, value })
  }
  return points
}
