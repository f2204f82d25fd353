import type { QueueReport } from './report.ts'

const number = new Intl.NumberFormat('en')
const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0)

/** The reports of a run, by queue, and what its jobs are called there. */
export interface NamedReport {
  readonly jobs: string
  readonly report: QueueReport
}

/** What happened, in three lines without a formula. @param rate as configured, such as 50/s */
export function verdict(rate: string, queues: readonly NamedReport[]): string {
  const of = (figure: (report: QueueReport) => number) => sum(queues.map(({ report }) => figure(report)))
  const parts = queues.map(({ jobs, report }) => `${number.format(report.delivered)} ${jobs}`).join(', ')
  const excess = of((report) => report.excessAtDeparture)
  const [lost, twice] = [of((report) => report.lost), of((report) => report.twice)]
  return [
    `Sent ${number.format(of((report) => report.delivered))} of ${number.format(of((report) => report.lines))}: ${parts}.`,
    excess === 0
      ? `Never above ${rate}, for either of them.`
      : `Above ${rate}: ${number.format(excess)} left too early.`,
    lost + twice === 0 ? 'Nothing lost, nothing twice.' : `${number.format(lost)} lost, ${number.format(twice)} twice.`,
  ].join('\n')
}

/** The difference between both limiters in one sentence. */
export function difference(ours: readonly QueueReport[], theirs: readonly QueueReport[]): string {
  const most = (reports: readonly QueueReport[]) =>
    Math.max(...reports.map(({ mostStartsIn100Ms }) => mostStartsIn100Ms))
  return `Most starts in any 100 ms: ${most(ours)} with Sluice, ${most(theirs)} with BullMQ's own limiter.`
}

/** What a first run leaves to be seen. */
export function nextSteps({ compare }: { readonly compare?: true }): string {
  const steps = [
    ...(compare ? [] : [['npm start -- --compare', "the same next to BullMQ's own limiter"]]),
    ['npm start -- --tenants 20', 'many tenants in one queue, fairly'],
    ['npm start -- --dashboard', 'a story to watch in a browser'],
    ['npx sluice-cli dashboard', 'your own queues, in a project that has Sluice'],
  ]
  return ['What to try next:', ...steps.map(([command = '', what = '']) => `  ${command.padEnd(28)}${what}`)].join('\n')
}
