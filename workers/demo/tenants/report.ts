import type { Tenant } from './load.ts'

/** A mail as the receiver saw it. */
export interface TenantMail {
  readonly tenant: string
  /** ms after the start of the run. */
  readonly atMs: number
  /** From when it was added to when it arrived, ms. */
  readonly waitMs: number
}

/** What a run showed at the receiver. */
export interface TenantRun {
  readonly title: string
  readonly mails: readonly TenantMail[]
  /** Jobs above the bound of the rate, in the worst window of departures. */
  readonly excess: number
}

/** One tenant in one run. */
export interface TenantFigures {
  readonly perSecond: number
  /** Of all mails, 0 to 1. */
  readonly share: number
  readonly longestWaitMs: number
}

/** Rate and share within a window from the start, in which most tenants have mails to send; the wait over the whole run. */
export function figuresOf({ mails }: TenantRun, tenant: string, windowMs: number): TenantFigures {
  const within = mails.filter(({ atMs }) => atMs <= windowMs)
  const own = within.filter((mail) => mail.tenant === tenant)
  const waits = mails.filter((mail) => mail.tenant === tenant).map(({ waitMs }) => waitMs)
  return {
    perSecond: (own.length * 1000) / windowMs,
    share: own.length / Math.max(1, within.length),
    longestWaitMs: Math.max(0, ...waits),
  }
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(2)} s`

/** A row per tenant: rate, share and longest wait of each run. */
export function tenantTable(tenants: readonly Tenant[], runs: readonly TenantRun[], windowMs: number): string {
  const names = ['tenant', 'mails', ...runs.flatMap(() => ['rate', 'share', 'longest wait'])]
  const rows = tenants.map(({ name, addedAtMs }) => [
    name,
    String(addedAtMs.length),
    ...runs.flatMap((run) => {
      const { perSecond, share, longestWaitMs } = figuresOf(run, name, windowMs)
      return [`${perSecond.toFixed(1)}/s`, `${(share * 100).toFixed(1)}%`, seconds(longestWaitMs)]
    }),
  ])
  const widths = names.map((_, i) => Math.max(...[names, ...rows].map((row) => row[i]!.length)))
  const line = (cells: readonly string[]) =>
    cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  ')
  // A title stands over the three columns of its run.
  const first = widths.slice(0, 2).reduce((sum, width) => sum + width + 2, 0)
  const over = runs.map(({ title }, i) => {
    const own = widths.slice(2 + 3 * i, 5 + 3 * i)
    return title.padEnd(own.reduce((sum, width) => sum + width, 4))
  })
  const rule = '─'.repeat(widths.reduce((sum, width) => sum + width + 2, -2))
  return [`${' '.repeat(first)}${over.join('  ')}`.trimEnd(), line(names), rule, ...rows.map(line)].join('\n')
}

const WIDTH = 860
const LEFT = 110
const RIGHT = 90
const ROW = 22
const TOP = 78
/** Light or dark by the viewer's preference, as the plots of `sluice simulate`. */
const STYLES = `<style>
text { font: 12px system-ui, sans-serif; fill: var(--text) } .title { font-weight: 600 }
.middle { text-anchor: middle } .end { text-anchor: end }
.paper { fill: var(--paper) } .run0 { fill: #d97706 } .run1 { fill: var(--second) } .grid { stroke: #6b7280; stroke-opacity: 0.3 }
:root { --paper: #ffffff; --text: #1f2937; --second: #2563eb }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --text: #e6edf3; --second: #60a5fa } }
</style>`

function text(x: number, y: number, content: string, classes = ''): string {
  return `<text x="${x}" y="${y}" class="${classes}">${content}</text>`
}

/** The longest wait of each tenant in each run, as bars on a logarithmic axis. */
export function tenantPlot(tenants: readonly Tenant[], runs: readonly TenantRun[], title: string): string {
  const waitOf = (run: TenantRun, { name }: Tenant) => Math.max(10, figuresOf(run, name, 1).longestWaitMs)
  const mostMs = Math.max(...runs.flatMap((run) => tenants.map((tenant) => waitOf(run, tenant))))
  const decades = Math.ceil(Math.log10(mostMs / 10))
  const x = (ms: number) => Math.round(LEFT + (Math.log10(ms / 10) / decades) * (WIDTH - LEFT - RIGHT))
  const bottom = TOP + tenants.length * ROW
  const marks = Array.from({ length: decades + 1 }, (_, i) => 10 ** (i + 1)).map((ms) => {
    const label = ms < 1000 ? `${ms} ms` : `${ms / 1000} s`
    const grid = `<line x1="${x(ms)}" y1="${TOP - 6}" x2="${x(ms)}" y2="${bottom}" class="grid"/>`
    return grid + text(x(ms), bottom + 18, label, 'middle')
  })
  const bars = tenants.flatMap((tenant, row) => {
    const y = TOP + row * ROW
    const name = text(LEFT - 8, y + 14, `${tenant.name} (${tenant.addedAtMs.length})`, 'end')
    const own = runs.map((run, i) => {
      const ms = waitOf(run, tenant)
      return `<rect x="${LEFT}" y="${y + 2 + i * 9}" width="${x(ms) - LEFT}" height="8" class="run${i}"/>`
    })
    return [name, ...own]
  })
  const legend = runs.map((run, i) => {
    const left = LEFT + i * 220
    return `<rect x="${left}" y="42" width="12" height="12" class="run${i}"/>${text(left + 18, 52, run.title)}`
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${bottom + 34}" role="img" aria-label="${title}">`,
    STYLES,
    `<rect width="${WIDTH}" height="${bottom + 34}" class="paper"/>`,
    text(LEFT, 26, title, 'title'),
    ...legend,
    ...marks,
    ...bars,
    '</svg>\n',
  ].join('\n')
}
