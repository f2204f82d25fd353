import { parser } from '@prometheus-io/lezer-promql'
import { METRICS } from '../../src/create-metrics.ts'

/** Of every series that Prometheus scrapes. */
const TARGET_LABELS = ['job', 'instance']

/** The series that Prometheus will have, with their labels: those of the registry, and its own. */
const SERIES: ReadonlyMap<string, readonly string[]> = new Map([
  ['up', TARGET_LABELS],
  ...METRICS.flatMap(({ name, type, labels }): [string, string[]][] => {
    const names = [...Object.keys(labels), ...TARGET_LABELS]
    if (type !== 'histogram') return [[name, names]]
    return [
      [`${name}_bucket`, [...names, 'le']],
      [`${name}_sum`, names],
      [`${name}_count`, names],
    ]
  }),
])

/** What is wrong with an expression of PromQL: that it is none, or that it names what nobody tells. */
export function mistakesIn(expression: string): string[] {
  const mistakes: string[] = []
  const labels: string[] = []
  const matched: [series: string, label: string][] = []
  let series = ''
  const named = new Set<string>()
  parser.parse(expression).iterate({
    enter({ name, type, from, to, node }) {
      const text = expression.slice(from, to)
      if (type.isError) mistakes.push(`not PromQL at ${from}`)
      if (name === 'Identifier') {
        series = text
        named.add(text)
      }
      if (name === 'LabelName' && node.parent?.name === 'GroupingLabels') labels.push(text)
      else if (name === 'LabelName') matched.push([series, text])
    },
  })
  if (named.size === 0) mistakes.push('names no metric')
  for (const one of named) if (!SERIES.has(one)) mistakes.push(`nobody tells ${one}`)
  for (const [one, label] of matched)
    if (!SERIES.get(one)?.includes(label)) mistakes.push(`${one} has no label ${label}`)
  for (const label of labels) {
    if (![...named].some((one) => SERIES.get(one)?.includes(label))) mistakes.push(`nothing here has a label ${label}`)
  }
  return mistakes
}

/** The labels that the series have which an expression comes to. */
export function labelsOf(expression: string): readonly string[] {
  const [, by] = /\bby \(([^)]*)\)/.exec(expression) ?? []
  if (by !== undefined) return by.split(', ')
  const named = [...SERIES].filter(([name]) => new RegExp(`\\b${name}\\b`).test(expression))
  return named.map(([, labels]) => labels).reduce((all, labels) => all.filter((label) => labels.includes(label)))
}
