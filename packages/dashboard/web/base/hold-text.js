import { perSecond, plural, time, timeIn } from './format.js'
import { heldGroupsText, overCapacityText, placesText } from './queue-text.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {import('../wire.d.ts').HoldCause} HoldCause
 */

/** Workers ask for a job well within this time. */
const ASK_MS = 1000

/**
 * @param {Queue} queue
 * @returns {string} what holds the next job, or that none is ready; and what follows where the queue is full, or why it
 *   is over its capacity
 */
export function nowSentence(queue) {
  const sentence = bypassSentence(queue) || heldGroupsSentence(queue) || nextJobSentence(queue)
  const over = overCapacityText(queue)
  const [failing, full] = ['Failing', 'Full'].map((one) => queue.conditions.find(({ name }) => name === one)?.text)
  const parts = [failing && `${failing}.`, sentence, full && `The queue is full: ${full}.`, over && `${over}.`]
  return parts.filter(Boolean).join(' ')
}

/**
 * What holds the next job applies only to workers that ask the meter.
 * @param {Queue} queue
 * @returns {string} '' where no job starts past the meter
 */
function bypassSentence(queue) {
  const text = queue.conditions.find(({ name }) => name === 'Bypassed')?.text
  if (text === undefined) return ''
  const hold = holdThatLasts(queue)
  const held = hold === undefined ? '' : ` ${holdSentence(hold).slice(0, -1)}, for workers that ask the meter.`
  return `${text[0]?.toUpperCase()}${text.slice(1)}.${held}`
}

/** @param {Queue} queue */
function nextJobSentence(queue) {
  const hold = holdThatLasts(queue)
  const places = hold?.cause === 'workers' && hold.group === undefined ? placesText(queue) : ''
  if (hold && places !== '') return `${holdSentence(hold).slice(0, -1)}: ${places}.`
  if (hold?.cause === 'pause' && queue.pauseReason) return `${holdSentence(hold).slice(0, -1)}: ${queue.pauseReason}.`
  if (hold) return holdSentence(hold)
  return queue.hold ? 'A worker is about to take the next job.' : idleSentence(queue)
}

/**
 * If all waiting jobs belong to groups that are held, workers find none to take: that is no lack of workers, and the
 * rate or the limit is not the queue's.
 * @param {Queue} queue
 * @returns {string} '' where that is not so
 */
function heldGroupsSentence(queue) {
  const { hold, groups, areAllHeld } = queue
  const isOfGroup = hold?.group !== undefined || hold?.cause === 'workers' || hold?.cause === 'rate'
  if (!hold || !isOfGroup || !groups || !areAllHeld) return ''
  const until = hold.until === undefined ? '' : `, the first until ${time(hold.until)}`
  return `All waiting jobs belong to groups that are held: ${heldGroupsText(groups)}${until}. See Groups below.`
}

/**
 * A job that has just arrived is not shown as held: a worker is about to ask for it.
 * @param {Queue} queue
 */
export function holdThatLasts({ hold, at }) {
  const isNew = hold?.cause === 'workers' && Date.parse(at) - Date.parse(hold.since) < ASK_MS
  return isNew ? undefined : hold
}

/**
 * @param {import('../wire.d.ts').Explained['hold']} hold
 * @param {string} [whom]
 * @returns {string} a sentence
 */
export function holdSentence(hold, whom = 'the next job') {
  if (!hold) return 'No job is ready.'
  const { closed } = hold
  const end = closed ? timeIn(closed.until, closed.timeZone) : hold.until && time(hold.until)
  const until = end === undefined ? '' : ` and will until ${end}${closed ? ': its schedule lets nothing leave' : ''}`
  const others = (hold.others ?? []).map((one) => {
    return `limit ${one.limit} of ${keysText(one.keys)}${one.until === undefined ? '' : ` until ${time(one.until)}`}`
  })
  const also = others.length === 0 ? '' : ` So do ${others.join(' and ')}.`
  return `${holderText(hold)} ${whom} since ${time(hold.since)}${until}.${also}`
}

/** @param {NonNullable<import('../wire.d.ts').Explained['hold']>} hold */
function holderText({ cause, limit, group, keys }) {
  if (keys !== undefined) return `The limit ${limit} of ${keysText(keys)} has held`
  if (group === undefined) return HELD_BY[cause](limit)
  return limit === undefined
    ? `The ${cause} of group ${group} has held`
    : `The limit ${limit} of group ${group} has held`
}

/**
 * @param {Readonly<Record<string, string>>} keys
 * @returns {string} their values: `group acme, model gpt-large`
 */
export function keysText(keys) {
  const names = Object.keys(keys).sort((one, other) =>
    one === 'group' ? -1 : other === 'group' ? 1 : one < other ? -1 : 1,
  )
  return names.map((name) => (name === 'group' && keys.group === '' ? 'no group' : `${name} ${keys[name]}`)).join(', ')
}

/**
 * What holds a place of a group, and when that ends if its worker has died.
 * @param {import('../wire.d.ts').GroupInDetail['holders'][number]} holder
 */
export function placeHolderText({ jobId, queue, lockEndsAt, worker, isSilent }) {
  const { name, id, host, pid, seenAt } = worker
  const place = host === undefined ? '' : ` (${host}, process ${pid})`
  const silent = isSilent && seenAt !== undefined ? `, silent since ${time(seenAt)}` : ''
  const lock =
    lockEndsAt === undefined
      ? 'its lock has ended: the next check for stalled jobs frees the place'
      : `its lock ends at ${time(lockEndsAt)}${isSilent ? '' : ' unless it is renewed'}`
  const elsewhere = queue === undefined ? '' : ` of queue ${queue.slice(0, -1)}`
  return `Job ${jobId}${elsewhere} of worker ${name ?? id ?? 'unknown'}${place}${silent}; ${lock}`
}

/** @type {Record<HoldCause, (limit?: string) => string>} */
const HELD_BY = {
  rate: () => 'The rate has held',
  limits: (limit) => (limit === undefined ? 'A limit has held' : `The limit ${limit} has held`),
  concurrency: () => 'The limit on running jobs has held',
  pause: () => 'A pause has held',
  workers: () => 'No worker has asked for',
}

/**
 * @param {Queue} queue in which no job is ready
 * @returns {string} a sentence
 */
function idleSentence({ delayed, waitingChildren, nextDueAt }) {
  const waits = []
  if (delayed > 0)
    waits.push(
      `${plural(delayed, 'job')} delayed${nextDueAt === undefined ? '' : ` (the first until ${time(nextDueAt)})`}`,
    )
  if (waitingChildren > 0) waits.push(`${plural(waitingChildren, 'job')} waiting for children`)
  return waits.length === 0 ? 'No job waits.' : `No job is ready: ${waits.join(', ')}.`
}

/** @param {Queue} queue */
export function feedbackText({ feedback, pausedUntil }) {
  if (!feedback) return ''
  const { rates, concurrency, probing, last } = feedback
  const held = Object.entries(rates).map(([name, value]) => `${name} ${perSecond(value)}`)
  if (last?.kind === 'pause' && pausedUntil !== undefined) held.unshift(`a pause until ${time(pausedUntil)}`)
  if (concurrency !== undefined) held.push(`at most ${plural(concurrency, 'job')} at once`)
  if (probing) held.push('one job probes before others follow')
  const why = last ? ` Last: ${last.reason || last.kind}.` : ''
  return held.length === 0 && why === ''
    ? ''
    : `Downstream feedback: ${held.join(', ') || 'nothing that holds now'}.${why}`
}
