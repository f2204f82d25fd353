import type { Merge, Point } from './points.ts'

/** A metric, whatever its numbers are read from. */
export interface Family<From> {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly unit: string
  readonly help: string
  /** Its labels and what each may say, beside `queue`. */
  readonly labels: Readonly<Record<string, readonly string[]>>
  /** For queues that share the label `other`. Default: `sum`. */
  readonly merge?: Merge
  readonly read: (from: From) => readonly Point[]
}

/** A number without labels of its own; nothing where it is not known. */
export function one(value: number | undefined): Point[] {
  return value === undefined ? [] : [{ labels: {}, value }]
}

/** A number for each value of a label. */
export function each(label: string, values: Readonly<Record<string, number | undefined>>): Point[] {
  // It is called a dozen times for each of very many queues.
  const points: Point[] = []
  for (const name in values) {
    const value = values[name]
    if (value !== undefined) points.push({ labels: { [label]: name }, value })
  }
  return points
}
