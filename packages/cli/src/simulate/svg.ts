import type { Point, SimulationSeries } from './series.ts'

/** One shape of a plot. */
export interface PlottedShape {
  readonly label: string
  /** The text after it in the legend. */
  readonly note: string
  readonly series: SimulationSeries
}

export interface SimulationPlot {
  readonly title: string
  readonly subtitle: string
  readonly shapes: readonly PlottedShape[]
}

const WIDTH = 900
const LEFT = 76
const RIGHT = 24
const PANEL = 210
const GAP = 62
const LEGEND_ROW = 22
/** From the palette of Okabe and Ito, which is safe for colour-blind readers; light and dark. */
const COLORS: readonly (readonly [light: string, dark: string])[] = [
  ['#0072b2', '#56b4e9'],
  ['#d55e00', '#ff9e4a'],
  ['#007a5a', '#2fd3a1'],
  ['#a8457f', '#f29bc9'],
  ['#8a6d00', '#f0e442'],
  ['#4b5563', '#cbd5e1'],
]

const round = (value: number): number => Math.round(value * 10) / 10
const colorOf = (shape: number): string => `var(--c${shape % COLORS.length})`

/** Queue length and waits over time, and the rate in force if it changes, one colour per shape. Light or dark by the viewer's preference. */
export function drawSimulation({ title, subtitle, shapes }: SimulationPlot): string {
  const top = 66 + shapes.length * LEGEND_ROW + 34
  // The end of a curve is one more point.
  const panels = shapes.some(({ series }) => series.rate.length > 2) ? 3 : 2
  const height = top + panels * PANEL + (panels - 1) * GAP + 52
  const seconds = most(shapes.flatMap(({ series }) => [series.depth, series.waitP95]).map(lastSecond), 1)
  const x = (at: number) => LEFT + (at / seconds) * (WIDTH - LEFT - RIGHT)
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-labelledby="title desc">`,
    `<title id="title">${escaped(title)}</title>`,
    `<desc id="desc">${escaped(`${subtitle}. ${shapes.map(({ label, note }) => `${label}: ${note}`).join('; ')}`)}</desc>`,
    styles(),
    `<rect class="paper" width="${WIDTH}" height="${height}" rx="8"/>`,
    text(LEFT, 30, title, 'heading'),
    text(LEFT, 51, subtitle, 'note'),
    ...shapes.flatMap((shape, i) => legendRow(shape, i, 76 + i * LEGEND_ROW)),
    ...depthPanel(shapes, { top, x, seconds }),
    ...waitPanel(shapes, { top: top + PANEL + GAP, x, seconds }),
    ...(panels === 2 ? [] : ratePanel(shapes, { top: top + 2 * (PANEL + GAP), x, seconds })),
    text((LEFT + WIDTH - RIGHT) / 2, height - 14, 'time since the first arrival', 'axis', 'middle'),
    '</svg>',
    '',
  ].join('\n')
}

function depthPanel(shapes: readonly PlottedShape[], place: Place): string[] {
  const curves = shapes.map(({ series }) => series.depth)
  return panel(
    { title: 'Jobs in the queue (longest in each slice of time)', ...place },
    countMarks,
    (y) => curves.map((depth, i) => path(stepped(binned(depth, place.seconds)), place.x, y, `stroke="${colorOf(i)}"`)),
    highestOf(curves, 1),
  )
}

function waitPanel(shapes: readonly PlottedShape[], place: Place): string[] {
  return panel(
    { title: 'Wait by time of arrival (solid: p95, dashed: p50)', ...place },
    timeMarks,
    (y) =>
      shapes.flatMap(({ series }, i) => [
        path(series.waitP50, place.x, y, `stroke="${colorOf(i)}" stroke-dasharray="5 4" stroke-opacity="0.8"`),
        path(series.waitP95, place.x, y, `stroke="${colorOf(i)}"`),
      ]),
    highestOf(
      shapes.map(({ series }) => series.waitP95),
      0.01,
    ),
  )
}

function ratePanel(shapes: readonly PlottedShape[], place: Place): string[] {
  const curves = shapes.map(({ series }) => series.rate)
  return panel(
    { title: 'Effective rate (units per second)', ...place },
    countMarks,
    (y) => curves.map((rate, i) => path(stepped(rate), place.x, y, `stroke="${colorOf(i)}"`)),
    highestOf(curves, 1e-6),
  )
}

function highestOf(curves: readonly (readonly Point[])[], least: number): number {
  return most(
    curves.flatMap((points) => points.map(([, value]) => value)),
    least,
  )
}

interface Panel extends Place {
  readonly title: string
}

interface Place {
  readonly top: number
  readonly x: (seconds: number) => number
  readonly seconds: number
}

function panel(
  { title, top, x, seconds }: Panel,
  marksOf: (most: number) => Mark[],
  curves: (y: (value: number) => number) => string[],
  highest: number,
): string[] {
  const bottom = top + PANEL
  const y = (value: number) => bottom - (value / (highest * 1.05)) * PANEL
  const levels = marksOf(highest * 1.05).map(({ value, label }) => [
    `<line class="grid" x1="${LEFT}" y1="${round(y(value))}" x2="${WIDTH - RIGHT}" y2="${round(y(value))}"/>`,
    text(LEFT - 8, y(value) + 4, label, 'axis', 'end'),
  ])
  const times = timeMarks(seconds).map(({ value, label }) => [
    `<line class="grid" x1="${round(x(value))}" y1="${top}" x2="${round(x(value))}" y2="${bottom}"/>`,
    text(x(value), bottom + 18, label, 'axis', 'middle'),
  ])
  const frame = `<path class="frame" d="M${LEFT} ${top}V${bottom}H${WIDTH - RIGHT}"/>`
  return [text(LEFT, top - 12, title, 'panel'), ...[...levels, ...times].flat(), frame, ...curves(y)]
}

function legendRow({ label, note }: PlottedShape, shape: number, y: number): string[] {
  const swatch = `<line x1="${LEFT}" y1="${y - 4}" x2="${LEFT + 26}" y2="${y - 4}" stroke="${colorOf(shape)}" stroke-width="3"/>`
  const name = label.length > 52 ? `${label.slice(0, 51)}…` : label
  const spans = `<tspan class="name">${escaped(name)}</tspan><tspan dx="10">${escaped(note)}</tspan>`
  return [swatch, `<text class="note" x="${LEFT + 36}" y="${y}">${spans}</text>`]
}

function path(points: readonly Point[], x: (s: number) => number, y: (v: number) => number, stroke: string): string {
  const d = points.map(([at, value], i) => `${i === 0 ? 'M' : 'L'}${round(x(at))} ${round(y(value))}`).join('')
  return `<path class="curve" d="${d}" ${stroke}/>`
}

/** At most one point per pixel column: the highest. */
function binned(points: readonly Point[], seconds: number): Point[] {
  const highest = new Map<number, Point>()
  for (const point of points) {
    const column = Math.floor((point[0] / seconds) * (WIDTH - LEFT - RIGHT))
    if (point[1] >= (highest.get(column)?.[1] ?? 0)) highest.set(column, point)
  }
  return [...highest.values()]
}

function stepped(points: readonly Point[]): Point[] {
  return points.flatMap((point, i) => (i === 0 ? [point] : [[point[0], (points[i - 1] as Point)[1]] as const, point]))
}

function lastSecond(points: readonly Point[]): number {
  return points.at(-1)?.[0] ?? 0
}

function most(values: readonly number[], least: number): number {
  return values.reduce((highest, value) => Math.max(highest, value), least)
}

function text(x: number, y: number, content: string, kind: string, anchor = 'start'): string {
  const where = anchor === 'start' ? '' : ` text-anchor="${anchor}"`
  return `<text class="${kind}" x="${round(x)}" y="${round(y)}"${where}>${escaped(content)}</text>`
}

function escaped(content: string): string {
  const marks: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
  // Characters that XML does not allow are replaced by spaces.
  return content.replaceAll(/[\p{Cc}\p{Cs}\ufffe\uffff]/gu, ' ').replaceAll(/[&<>"]/g, (mark) => marks[mark] as string)
}

function styles(): string {
  const colors = (mode: 0 | 1) => COLORS.map((color, i) => `--c${i}:${color[mode]}`).join(';')
  return [
    '<style>',
    `svg{--paper:#ffffff;--ink:#1f2937;--faint:#4b5563;--line:#9ca3af;${colors(0)};font-family:system-ui,sans-serif}`,
    `@media (prefers-color-scheme:dark){svg{--paper:#111827;--ink:#f3f4f6;--faint:#cbd5e1;--line:#6b7280;${colors(1)}}}`,
    '.paper{fill:var(--paper)}.heading{font-size:17px;font-weight:700;fill:var(--ink)}',
    '.note,.axis{font-size:13px;fill:var(--faint)}.name{font-weight:600;fill:var(--ink)}',
    '.panel{font-size:13px;font-weight:600;fill:var(--ink)}',
    '.grid{stroke:var(--line);stroke-opacity:.3}.frame{fill:none;stroke:var(--line)}',
    '.curve{fill:none;stroke-width:1.8;stroke-linejoin:round}',
    '</style>',
  ].join('\n')
}

/** A mark of an axis. */
interface Mark {
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
