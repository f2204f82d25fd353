/** A series of the plot: the starts of jobs. */
export interface Series {
  readonly label: string
  readonly color: string
  /** ms since the first start. */
  readonly startsMs: readonly number[]
}

export interface Plot {
  readonly title: string
  readonly perSecond: number
  readonly forMs: number
  readonly series: readonly Series[]
}

const WIDTH = 860
const LEFT = 60
const RIGHT = 20
const CURVES = { top: 70, height: 260 }
const LANE = { height: 34, gap: 30 }
const AXIS = '#6b7280'
const TEXT = '#1f2937'
const FONT = 'font-family="system-ui, sans-serif"'

const round = (value: number): number => Math.round(value * 10) / 10

function text(x: number, y: number, content: string, more = ''): string {
  return `<text x="${round(x)}" y="${round(y)}" ${FONT} font-size="13" fill="${TEXT}" ${more}>${content}</text>`
}

function line(x1: number, y1: number, x2: number, y2: number, more: string): string {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" ${more}/>`
}

/** Number of jobs started so far, as a step curve. */
function curve({ startsMs, color }: Series, x: (ms: number) => number, y: (jobs: number) => number): string {
  const steps = startsMs.map((ms, i) => `H${round(x(ms))}V${round(y(i + 1))}`).join('')
  return `<path d="M${round(x(0))} ${round(y(0))}${steps}" fill="none" stroke="${color}" stroke-width="2"/>`
}

/** One tick per start. */
function lane({ startsMs, color, label }: Series, x: (ms: number) => number, top: number): string {
  const ticks = startsMs.map((ms) => `M${round(x(ms))} ${top}v${LANE.height}`).join('')
  const name = text(LEFT, top - 7, label, `font-weight="600"`)
  return `${name}<path d="${ticks}" stroke="${color}" stroke-width="1"/>`
}

function seconds(plot: Plot, x: (ms: number) => number, bottom: number): string[] {
  const marks = Array.from({ length: Math.floor(plot.forMs / 1000) + 1 }, (_, i) => i)
  return marks.map((s) => {
    const grid = line(x(s * 1000), CURVES.top, x(s * 1000), bottom, `stroke="${AXIS}" stroke-opacity="0.25"`)
    return grid + text(x(s * 1000), bottom + 18, `${s} s`, 'text-anchor="middle"')
  })
}

function curves(plot: Plot, x: (ms: number) => number): string[] {
  const allowed = (plot.perSecond * plot.forMs) / 1000 + 1
  const most = Math.max(allowed, ...plot.series.map(({ startsMs }) => startsMs.length))
  const bottom = CURVES.top + CURVES.height
  const y = (jobs: number) => bottom - (jobs / most) * CURVES.height
  const dashes = `stroke="${AXIS}" stroke-dasharray="5 4" stroke-width="1.5"`
  const levels = Array.from({ length: Math.floor(most / 50) + 1 }, (_, i) => i * 50)
  return [
    ...levels.map((jobs) => text(LEFT - 8, y(jobs) + 4, String(jobs), 'text-anchor="end"')),
    line(x(0), y(1), x(plot.forMs), y(allowed), dashes),
    ...plot.series.map((series) => curve(series, x, y)),
  ]
}

/** Draws the number of started jobs over time against the rate, and below it every single start. */
export function drawStarts(plot: Plot): string {
  const x = (ms: number) => LEFT + (ms / plot.forMs) * (WIDTH - LEFT - RIGHT)
  const firstLane = CURVES.top + CURVES.height + 40
  const laneTop = (i: number) => firstLane + i * (LANE.height + LANE.gap)
  const bottom = laneTop(plot.series.length - 1) + LANE.height + 6
  const height = bottom + 34
  const within = plot.series.map((series) => ({
    ...series,
    startsMs: series.startsMs.filter((ms) => ms <= plot.forMs),
  }))
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img">`,
    `<title>${plot.title}</title>`,
    `<rect width="${WIDTH}" height="${height}" rx="8" fill="#ffffff"/>`,
    text(LEFT, 28, plot.title, 'font-weight="700"'),
    text(LEFT, 50, `jobs started since the first; dashed: ${plot.perSecond}/s. Below: every single start`),
    ...seconds(plot, x, bottom),
    ...curves({ ...plot, series: within }, x),
    ...within.map((series, i) => lane(series, x, laneTop(i))),
    '</svg>',
    '',
  ].join('\n')
}
