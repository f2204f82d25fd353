import { type Command, Option } from 'commander'
import type { GroupFields, GroupOverride, GroupState, ShapedQueue } from 'sluice'
import { addedCounts, formatDuration, keysText, NoGroupsError, plainText } from 'sluice/internal'
import { addReason, durationOption, parseNonEmpty, parseQueueName, type Reason, wholeNumber } from '../arguments.ts'
import { type AddCommand, type Cli, CommandError, EXIT_CODES, type Runner } from '../cli.ts'
import { existingParts, existingQueueOfGroup } from '../existing-queue.ts'
import { holderText, lastsText, overrideTexts } from '../queue-text.ts'
import { readRate } from '../shape-fields.ts'

const LISTED = ['limited', 'maxed', 'paused', 'waiting'] as const
const BOUNDS = { capacity: 'its capacity', share: 'what is free in the queue' } as const

export const addCommand: AddCommand = (program, run) => {
  const group = program.command('group').description('Shows and changes single groups of a queue.')
  addList(group, run)
  addShow(group, run)
  addSet(group, run)
  addClear(group, run)
  addPause(group, run)
  addResume(group, run)
}

function groupCommand(group: Command, name: string, description: string): Command {
  return group
    .command(name)
    .description(description)
    .argument('<queue>', 'the queue', parseQueueName)
    .argument('<group>', 'the id of the group', parseNonEmpty)
}

function addList(group: Command, run: Runner): void {
  group
    .command('list')
    .description('Shows how many groups have waiting jobs, and which are held.')
    .argument('<queue>', 'the queue', parseQueueName)
    .addOption(new Option('--status <status>', 'only groups with this status').choices(LISTED))
    .option('--count <groups>', 'show at most this many of each status', wholeNumber(1, 1000), 10)
    .action(run(list))
}

function addShow(group: Command, run: Runner): void {
  groupCommand(group, 'show', 'Shows the status of a group, and its settings.').action(run(show))
}

const numberOrShare = (value: string) => (value.endsWith('%') ? value : number(value))

const number = (value: string) => (value === 'none' ? value : Number(value))

function addSet(group: Command, run: Runner): void {
  const command = groupCommand(
    group,
    'set',
    "Overrides the shape's defaults for one group, until --for expires or 'group clear' runs.",
  )
    .option('--rate <rate>', "its rate: '10/s', or a schedule as JSON or @file", readRate)
    .option('--burst <units>', 'units that may leave it back to back', number)
    .option('--concurrency <jobs>', "its jobs that may run at once, or a share of the queue's: '25%'", numberOrShare)
    .option('--capacity <jobs>', 'its jobs that may wait', number)
    .option('--weight <weight>', 'its share, relative to other groups', number)
    .option('--order <order>', "'strict': one job at a time")
    .option('--on-failed <what>', "in strict order, when a job fails permanently: 'next', or 'hold' the group")
    .addOption(durationOption('--for <duration>', 'for how long (default: until cleared)'))
    .addHelpText(
      'after',
      "\nThe value 'none' lifts a limit.\n\nExample:\n  $ sluice group set emails tenant-42 --rate 50/s --weight 4 --reason enterprise\n",
    )
  addReason(command).action(run(set))
}

function addClear(group: Command, run: Runner): void {
  const command = groupCommand(group, 'clear', 'Ends overrides of a group: the defaults apply again.').argument(
    '[fields...]',
    'fields such as rate (default: all)',
  )
  addReason(command).action(run(clear))
}

function addPause(group: Command, run: Runner): void {
  const command = groupCommand(group, 'pause', 'Holds the jobs of one group.').addOption(
    durationOption('--for <duration>', 'for how long (default: until resumed)'),
  )
  addReason(command).action(run(pause))
}

function addResume(group: Command, run: Runner): void {
  const command = groupCommand(group, 'resume', 'Ends the pause of a group.')
  addReason(command).action(run(resume))
}

interface ListOptions {
  readonly status?: (typeof LISTED)[number]
  readonly count: number
}

async function list(cli: Cli, name: string, { status, count }: ListOptions): Promise<void> {
  const parts = await existingParts(cli, name)
  if ((await (parts[0] as ShapedQueue).getShape())?.groups === undefined) throw new NoGroupsError(name)
  const counts = addedCounts(await Promise.all(parts.map((queue) => queue.getGroupsCountByStatus())))
  const statuses = status === undefined ? LISTED : [status]
  const groups = (await Promise.all(statuses.map((one) => groupsWith(parts, one, count)))).flat()
  cli.print({ queue: name, counts, groups }, () => {
    const summary = LISTED.map((one) => `${counts[one]} ${one}`).join(', ')
    if (groups.length === 0) return `groups of ${name}: ${summary}`
    const rows = groups.map((group) => [
      plainText(group.id),
      group.status,
      String(group.waiting),
      group.active === undefined ? '' : String(group.active),
      untilText(group),
    ])
    return `groups of ${name}: ${summary}\n${cli.table(['group', 'status', 'waiting', 'running', 'until'], rows)}`
  })
}

/** At most so many groups of a status; of several shards first those of the first ones. */
async function groupsWith(parts: readonly ShapedQueue[], status: (typeof LISTED)[number], count: number) {
  const found = parts.map(async (queue) => {
    const ids = await queue.getGroupsByStatus(status, 0, count - 1)
    return ids.map((id) => ({ queue, id }))
  })
  const most = (await Promise.all(found)).flat().slice(0, count)
  return Promise.all(most.map(({ queue, id }) => queue.getGroup(id)))
}

async function show(cli: Cli, name: string, id: string): Promise<void> {
  const queue = await existingQueueOfGroup(cli, name, id)
  const group = await queue.getGroup(id)
  const isFull = group.status === 'maxed'
  const holders = (isFull ? (await cli.inspector().group(queue.name, id))?.holders : undefined) ?? []
  cli.print({ queue: name, ...group, ...(isFull && { holders }) }, () => {
    const { status, waiting, delayed, active, bound, inForce, overrides } = group
    const until = untilText(group)
    const rows = Object.entries(inForce).map(([field, value]) => [
      field,
      String(value),
      overrides[field] ? 'set' : 'default',
    ])
    return [
      `group ${plainText(id)} of ${name}: ${status}${limitText(group)}${until && ` until ${until}`}`,
      `${waiting} waiting${delayed > 0 ? `, ${delayed} delayed` : ''}${active === undefined ? '' : `, ${active} running`}`,
      bound ? `${waiting + delayed} of ${bound.jobs} places, by ${BOUNDS[bound.by]}` : 'no bound on its jobs',
      ...holders.map((holder) => `a place is held by ${holderText(holder, group.at)}`),
      ...(rows.length > 0 ? [cli.table(['field', 'value', 'from'], rows)] : []),
      ...overrideTexts(overrides),
    ].join('\n')
  })
}

function limitText({ heldBy, heldKeys, maxedBy }: GroupState): string {
  if (maxedBy === 'keepFree') return ', the other places are kept free'
  if (heldBy === undefined) return ''
  return plainText(` by limit ${heldBy}${heldKeys ? ` of ${keysText(heldKeys)}` : ''}`)
}

function untilText({ until, at }: GroupState): string {
  return until ? `${until.toISOString()} (${formatDuration(Math.max(0, until.getTime() - at.getTime()))})` : ''
}

type SetOptions = Readonly<Record<keyof GroupFields, string | number | undefined>> & {
  readonly reason: string
  readonly for?: number
}

async function set(cli: Cli, name: string, id: string, options: SetOptions): Promise<void> {
  const { encodeGroupOverride, GROUP_FIELDS } = await import('sluice/internal')
  const given = GROUP_FIELDS.flatMap((field) => {
    const value = options[field as keyof GroupFields]
    return value === undefined ? [] : [[field, value === 'none' ? null : value] as const]
  })
  if (given.length === 0) {
    throw new CommandError(EXIT_CODES.usage, "expected at least one field and its value, such as '--rate 20/s'")
  }
  const override = Object.fromEntries(given) as GroupOverride
  // Invalid input is reported before Redis is asked.
  encodeGroupOverride(override)
  const { reason, for: ttlMs } = options
  const queue = await existingQueueOfGroup(cli, name, id)
  await queue.setGroup(id, override, { by: cli.by, reason, ...(ttlMs === undefined ? {} : { ttlMs }) })
  cli.print({ queue: name, group: id, set: override, forMs: ttlMs, by: cli.by, reason }, () => {
    return `group ${plainText(id)} of ${name}: ${given.map(([field]) => field).join(', ')} set ${lastsText(ttlMs)}`
  })
}

async function clear(cli: Cli, name: string, id: string, fields: string[], { reason }: Reason): Promise<void> {
  const { checkGroupField } = await import('sluice/internal')
  for (const field of fields) checkGroupField(field)
  const queue = await existingQueueOfGroup(cli, name, id)
  const chosen = fields.length > 0 ? (fields as (keyof GroupFields)[]) : undefined
  await queue.clearGroup(id, { fields: chosen, by: cli.by, reason })
  const cleared = fields.length === 0 ? 'all' : fields
  cli.print({ queue: name, group: id, cleared, by: cli.by, reason }, () => {
    return `group ${plainText(id)} of ${name}: ${fields.length === 0 ? 'all that was set' : fields.join(', ')} cleared`
  })
}

async function pause(cli: Cli, name: string, id: string, { reason, for: ttlMs }: Reason & { readonly for?: number }) {
  const queue = await existingQueueOfGroup(cli, name, id)
  await queue.pauseGroup(id, { by: cli.by, reason, ...(ttlMs === undefined ? {} : { ttlMs }) })
  const until = ttlMs === undefined ? 'until it is resumed' : `for ${formatDuration(ttlMs)}`
  cli.print({ queue: name, group: id, paused: true, forMs: ttlMs, by: cli.by, reason }, () => {
    return `group ${plainText(id)} of ${name} is paused ${until}`
  })
}

async function resume(cli: Cli, name: string, id: string, { reason }: Reason): Promise<void> {
  const queue = await existingQueueOfGroup(cli, name, id)
  await queue.resumeGroup(id, { by: cli.by, reason })
  cli.print({ queue: name, group: id, paused: false, by: cli.by, reason }, () => {
    return `group ${plainText(id)} of ${name} is resumed`
  })
}
