/** What started in each 100 ms. */
export interface Bars {
  readonly label: string
  /** What the reader should take from the bars. */
  readonly remark: string
  readonly counts: readonly number[]
  /** Whether this is the system that exceeds the provider's limit. */
  readonly exceeds: boolean
}

/** A column of the picture: the systems at one rate. */
export interface Column {
  readonly perSecond: number
  readonly setup: string
  readonly rows: readonly Bars[]
}

export const BIN_MS = 100

const WIDTH = 880
const MARGIN = 24
const GAP = 48
const TOP = 76
const PANEL = { width: (WIDTH - 2 * MARGIN - GAP) / 2, height: 110, title: 40, axis: 24 }
const ROW = PANEL.title + PANEL.height + PANEL.axis

/** Light or dark by the viewer's preference, as the plots of `sluice simulate`. */
const STYLES = `<style>
text { font: 12px system-ui, sans-serif; fill: var(--text) }
.title { font-weight: 700; font-size: 16px } .label { font-weight: 600; font-size: 13px }
.faint { fill: var(--faint) } .small { font-size: 11px } .middle { text-anchor: middle } .end { text-anchor: end }
.count { font-size: 10px; text-anchor: middle; paint-order: stroke; stroke: var(--paper); stroke-width: 3px }
.paper { fill: var(--paper) } .kept { fill: var(--kept) } .exceeded { fill: var(--exceeded) } .refused { fill: var(--exceeded); fill-opacity: 0.08 }
.limit { stroke: var(--exceeded); stroke-dasharray: 5 4 } .ground { stroke: var(--faint) }
:root { --paper: #ffffff; --text: #1f2937; --faint: #6b7280; --kept: #0f766e; --exceeded: #be123c }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --text: #e6edf3; --faint: #8b949e; --kept: #2dd4bf; --exceeded: #fb7185 } }
</style>`

const round = (value: number): number => Math.round(value * 10) / 10

function text(x: number, y: number, content: string, classes: string): string {
  return `<text x="${round(x)}" y="${round(y)}" class="${classes}">${content}</text>`
}

function rect(x: number, y: number, width: number, height: number, classes: string): string {
  return `<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" class="${classes}"/>`
}

const limitOf = ({ perSecond }: Column): number => (perSecond * BIN_MS) / 1000

function panel(column: Column, { label, remark, counts, exceeds }: Bars, left: number, top: number): string {
  const limit = limitOf(column)
  // Room for the numbers above the highest bar.
  const most = Math.max(limit * 2, ...column.rows.flatMap((row) => row.counts)) * 1.15
  const ground = top + PANEL.title + PANEL.height
  const right = left + PANEL.width
  const step = PANEL.width / counts.length
  const y = (count: number) => ground - (count / most) * PANEL.height
  const marks = Array.from({ length: Math.floor((counts.length * BIN_MS) / 500) + 1 }, (_, i) => i / 2)
  return [
    text(left, top + 12, label, 'label'),
    text(left, top + 29, remark, 'faint'),
    rect(left, y(most), PANEL.width, y(limit) - y(most), 'refused'),
    `<path d="M${left} ${round(y(limit))}H${right}" class="limit"/>`,
    // In the middle of the bars that a burst leaves empty.
    text(left + step * 6.3, y(limit) - 24, `above the provider's limit of ${limit}: 429`, 'small middle exceeded'),
    ...counts.map((count, i) => {
      const bar = rect(left + i * step + 2, y(count), step - 4, ground - y(count), exceeds ? 'exceeded' : 'kept')
      return bar + text(left + (i + 0.5) * step, y(count) - 4, String(count), 'count')
    }),
    `<path d="M${left} ${ground}H${right}" class="ground"/>`,
    ...marks.map((s) => {
      const anchor = s === 0 ? '' : s === marks.at(-1) ? 'end' : 'middle'
      return text(left + ((s * 1000) / BIN_MS) * step, ground + 15, `${s} s`, `small faint ${anchor}`)
    }),
  ].join('\n')
}

/** Draws starts per 100 ms as bars, with the provider's limit as a line: a panel for each system at each rate. */
export function drawStarts(title: string, columns: readonly Column[]): string {
  const height = TOP + Math.max(...columns.map(({ rows }) => rows.length)) * ROW + 8
  const drawn = columns.flatMap((column, c) => {
    const left = MARGIN + c * (PANEL.width + GAP)
    return [
      text(left, 56, `${column.perSecond}/s: ${column.setup}`, 'faint'),
      ...column.rows.map((bars, r) => panel(column, bars, left, TOP + r * ROW)),
    ]
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img">`,
    `<title>${title}</title>`,
    STYLES,
    rect(0, 0, WIDTH, height, 'paper'),
    text(MARGIN, 32, title, 'title'),
    ...drawn,
    '</svg>',
    '',
  ].join('\n')
}
