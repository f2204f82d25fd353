import type { RedisState } from 'sluice/inspect'
import { countText } from 'sluice/internal'
import type { Cli } from './cli.ts'
import {
  ageText,
  briefLookText,
  briefStateText,
  CAUSE_SHARE,
  causeText,
  depthText,
  heldByText,
  NAME_SHARE,
  numberText,
  rateText,
  shortText,
  workerTable,
} from './queue-text.ts'
import type { QueueFlow } from './watch-queues.ts'

export interface TopView {
  readonly queues: readonly QueueFlow[]
  /** How many queues there are, shown or not. */
  readonly total: number
  readonly redis: RedisState
  readonly at: Date
  /** Why the last look failed, if it did; the queues are then those of the previous look. */
  readonly trouble?: string
}

/** The screen of `top`, cut to at most `maxLines` lines of at most `maxColumns`. */
export function topScreen(cli: Cli, view: TopView, maxLines: number, maxColumns: number): string {
  const { queues, total, redis, at, trouble } = view
  const count =
    total > queues.length ? `${numberText(queues.length)} of ${countText(total, 'queue')}` : countText(total, 'queue')
  const title = `sluice top  ${at.toISOString()}  ${count}  (q ends)`
  const lines = [cli.colors.bold(title)]
  if (trouble !== undefined) lines.push(cli.colors.red(shortText(trouble, maxColumns)))
  lines.push(...briefLookText(cli, redis, queues, maxColumns))
  lines.push('', ...flowTable(cli, queues, maxColumns).split('\n'))
  if (queues.some(({ workers }) => workers.length > 0))
    lines.push('', ...workerTable(cli, queues, maxColumns).split('\n'))
  if (lines.length <= maxLines) return lines.join('\n')
  const kept = Math.max(1, maxLines - 1)
  return [...lines.slice(0, kept), cli.colors.dim(`… ${lines.length - kept} more lines`)].join('\n')
}

/** Columns that are left out on a narrow terminal, the least important first. */
const OMITTED = ['done/s', 'active', 'cause', 'head age', 'refused/s', 'in/s', 'failed/s', 'groups', 'state']

function flowTable(cli: Cli, queues: readonly QueueFlow[], maxColumns: number): string {
  const hasGroups = queues.some(({ groups }) => groups)
  const flows = ['in/s', 'out/s', 'refused/s', 'done/s', 'failed/s']
  const figures = ['queue', 'state', ...flows, 'rate', 'cause', 'depth', 'active', 'head age']
  const head = [...figures, ...(hasGroups ? ['groups'] : []), 'held by']
  return cli.table(
    head,
    queues.map((queue) => [
      shortText(queue.name, maxColumns * NAME_SHARE),
      briefStateText(cli, queue),
      numberText(queue.arrivalsPerSecond),
      departuresText(cli, queue),
      redIf(cli, (queue.refusalsPerSecond ?? 0) > 0, numberText(queue.refusalsPerSecond)),
      numberText(queue.completionsPerSecond),
      redIf(cli, queue.failing !== undefined, numberText(queue.failuresPerSecond)),
      rateText(queue),
      causeText(cli, queue),
      depthText(queue),
      numberText(queue.active),
      ageText(queue),
      ...(hasGroups ? [groupsText(queue)] : []),
      shortText(heldByText(queue), maxColumns * CAUSE_SHARE),
    ]),
    { maxColumns, omitted: OMITTED },
  )
}

/** With what starts past the meter: `2.1 (+6.7)`. */
function departuresText(cli: Cli, { departuresPerSecond, bypassesPerSecond, bypass }: QueueFlow): string {
  const text = numberText(departuresPerSecond)
  return bypass ? `${text} ${cli.colors.red(`(+${numberText(bypass.perSecond ?? bypassesPerSecond)})`)}` : text
}

function redIf({ colors }: Cli, is: boolean, text: string): string {
  return is ? colors.red(text) : text
}

/** How many groups have jobs waiting, and how many of these are held. */
function groupsText({ groups }: QueueFlow): string {
  if (!groups) return numberText(undefined)
  const held = groups.limited + groups.maxed + groups.paused
  return `${numberText(groups.waiting + held)}${held > 0 ? ` (${numberText(held)} held)` : ''}`
}
