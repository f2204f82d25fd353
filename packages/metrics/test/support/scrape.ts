/** The lines of a scrape: `name{label="value"}`, its labels sorted, and the number behind it. */
export type Scrape = ReadonlyMap<string, number>

/** Reads the text format of Prometheus; throws for a line that is none. */
export function readScrape(text: string): Scrape {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  const scrape = new Map(lines.map(readLine))
  if (scrape.size < lines.length) throw new Error(`expected every series once; got\n${text}`)
  return scrape
}

/** The number of one series, whose labels stand in the order of the alphabet; undefined where it is not told. */
export function sample(
  scrape: Scrape,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  return scrape.get(seriesName(name, Object.entries(labels)))
}

/** All numbers of a metric, whatever their labels. */
export function samples(scrape: Scrape, name: string): number[] {
  return [...scrape].filter(([series]) => series.split('{')[0] === name).map(([, value]) => value)
}

function readLine(line: string): [string, number] {
  const [, name = '', labels = '', value] = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
  if (value === undefined) throw new Error(`expected a series and a number; got ${line}`)
  const pairs = [...labels.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, text]) => [label, text] as const)
  return [seriesName(name, pairs as [string, string][]), Number(value)]
}

function seriesName(name: string, labels: readonly (readonly [string, string])[]): string {
  const sorted = labels.toSorted(([one], [other]) => (one < other ? -1 : 1))
  return `${name}{${sorted.map(([label, text]) => `${label}="${text}"`).join(',')}}`
}
