import { queueActions } from '../actions/actions.js'
import { ApiError, getQueue } from '../base/api.js'
import { showBadges } from '../base/badges.js'
import { h, setText } from '../base/dom.js'
import { Flow } from '../base/flow.js'
import { say } from '../base/said.js'
import { explainJob } from '../jobs/explain.js'
import { Jobs } from '../jobs/jobs.js'
import { Bucket } from './bucket.js'
import { Facts } from './facts.js'
import { Groups } from './groups.js'
import { HistoryTable } from './history-table.js'
import { LimitsTable } from './limits-table.js'
import { shardsTable } from './shards-table.js'
import { Timeline } from './timeline.js'
import { workersTable } from './workers-table.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {import('../wire.d.ts').Change} Change
 */

const MAX_CHANGES = 200
/** Lists that take longer come after the page. */
const LISTS_MS = 1000

/** The view of one queue. */
export class QueueView {
  #name
  #flow = new Flow()
  #badges = h('span', { class: 'badges' })
  #bucket = new Bucket()
  #facts = new Facts()
  #timeline
  #limits = new LimitsTable()
  #workers = workersTable()
  #shards = shardsTable()
  #shardsCard = card('Shards', this.#shards.element)
  #history = new HistoryTable()
  #jobs
  #groups
  #rows
  #keysPlace = h('div', { hidden: true })
  /** @type {Promise<import('./limit-keys.js').LimitKeys | undefined> | undefined} */
  #keys
  #actions = queueActions()
  #gone = h('p', { class: 'notice', role: 'status', hidden: true })
  #content
  /** @type {readonly Change[]} newest first */
  #changes = []
  #mayChange
  /** Shows what is below the first screen. */
  #showBelow = () => {}
  #isUnknown = false
  #wasUnread = false
  #onUnknown
  #onKnown
  element
  title

  /**
   * @param {string} name
   * @param {{ showData: boolean, allowActions: boolean } | undefined} facts whether job data is included, and whether
   *   changes are allowed
   * @param {{ onUnknown: () => void, onKnown: () => void }} terms called where there is no such queue, and when it was made
   */
  constructor(name, { showData, allowActions } = { showData: false, allowActions: false }, { onUnknown, onKnown }) {
    this.#name = name
    this.#onUnknown = onUnknown
    this.#onKnown = onKnown
    this.#mayChange = allowActions
    this.title = name
    this.#timeline = new Timeline(name)
    const rows = { showData, mayChange: allowActions, explain: (/** @type {string} */ id) => this.explain(id) }
    this.#rows = rows
    this.#jobs = new Jobs(name, rows)
    this.#groups = new Groups(name, rows)
    this.#content = h(
      'div',
      { class: 'queue', hidden: true },
      h('div', { class: 'hero' }, this.#bucket.element, this.#facts.element),
      this.#jobs.element,
      this.#groups.element,
      this.#keysPlace,
      this.#timeline.element,
      this.#shardsCard,
      h('div', { class: 'pair' }, card('Limits', this.#limits.element), card('Workers', this.#workers.element)),
      card('History', this.#history.element),
    )
    this.element = h(
      'div',
      {},
      h(
        'div',
        { class: 'queue-head' },
        h('a', { href: '?', 'data-route': true, class: 'back' }, 'All queues'),
        h('h1', {}, name),
        this.#badges,
        this.#actions.element,
      ),
      this.#gone,
      this.#content,
    )
    void this.refill()
  }

  /** Reads what events do not report: the earlier history. */
  async refill() {
    try {
      const { status, history } = await getQueue(this.#name)
      this.#gone.hidden = true
      this.onQueue({ status, history })
    } catch (error) {
      this.#isUnknown = error instanceof ApiError && error.status === 404
      setText(
        this.#gone,
        this.#isUnknown
          ? `There is no queue “${this.#name}” with a shape here. It is shown as soon as there is one.`
          : String(error instanceof Error ? error.message : error),
      )
      this.#gone.hidden = false
      if (!this.#isUnknown) return
      this.#content.hidden = true
      this.#onUnknown()
    }
  }

  /** Called after the stream was interrupted. */
  restored() {
    void this.refill()
    this.#timeline.refill()
  }

  /** @param {import('../wire.d.ts').Fleet} fleet */
  onFleet({ queues }) {
    if (!this.#isUnknown || !queues.some(({ name }) => name === this.#name)) return
    this.#isUnknown = false
    this.#onKnown()
  }

  /** @param {import('../wire.d.ts').QueueNews} news */
  onQueue({ status, history }) {
    this.#changes = merged(history, this.#changes)
    // What was changed meanwhile, and before, could not be read.
    if (this.#wasUnread && !status.unread) this.restored()
    this.#wasUnread = status.unread !== undefined
    this.#flow.push(status)
    const flow = this.#flow.perSecond()
    showBadges(this.#badges, status.conditions)
    this.#bucket.show(status, flow)
    this.#facts.show(status, flow)
    this.#jobs.show(status)
    this.#groups.show(status, this.#mayChange)
    void this.#showKeys(status)
    this.#actions.show(this.#mayChange ? { ...status, deadQueues: () => this.#jobs.dead.queues } : undefined)
    this.#showBelow = () => {
      this.#timeline.show(status, this.#changes)
      this.#limits.show(status)
      this.#workers.show(status.workers)
      this.#shardsCard.hidden = status.shards === undefined
      this.#shards.show(status.shards ?? [])
      if (!status.unread || this.#changes.length > 0) this.#history.show(this.#changes)
    }
    if (this.#content.hidden) void this.#reveal()
    else this.#showBelow()
  }

  /** What shows keys is loaded where a limit counts by them. @param {Queue} status */
  async #showKeys({ shape }) {
    const limits = (shape?.limits ?? []).filter(({ by }) => by !== undefined)
    if (limits.length === 0 && !this.#keys) return
    this.#keys ??= this.#loadKeys()
    const keys = await this.#keys
    keys?.show(limits, this.#mayChange)
  }

  async #loadKeys() {
    try {
      const { LimitKeys } = await import('./limit-keys.js')
      const keys = new LimitKeys(this.#name, this.#rows)
      this.#keysPlace.replaceWith(keys.element)
      return keys
    } catch {
      say('The keys of limits could not be loaded.')
      return undefined
    }
  }

  /** Waits a moment for the first lists, so that nothing moves when they arrive. */
  async #reveal() {
    const late = new Promise((resolve) => setTimeout(resolve, LISTS_MS))
    await Promise.race([Promise.all([this.#jobs.read, this.#groups.read]), late])
    this.#content.hidden = this.#isUnknown
    // Once the browser has drawn the first screen.
    setTimeout(() => this.#showBelow())
  }

  /** @param {string} id */
  explain(id) {
    const url = new URL(location.href)
    url.searchParams.set('job', id)
    history.replaceState(null, '', url)
    explainJob(this.#name, id, {
      mayChange: this.#mayChange,
      deadQueues: () => this.#jobs.dead.queues,
      onClose: () => {
        url.searchParams.delete('job')
        history.replaceState(null, '', url)
      },
    })
  }

  close() {
    this.#timeline.close()
    this.#jobs.close()
    this.#groups.close()
    void this.#keys?.then((keys) => keys?.close())
  }
}

/**
 * @param {string} title
 * @param {HTMLElement} body
 */
function card(title, body) {
  const id = `title-${title.toLowerCase()}`
  return h('section', { class: 'card short', 'aria-labelledby': id }, h('h2', { id }, title), body)
}

/**
 * @param {readonly Change[]} news
 * @param {readonly Change[]} known
 * @returns {readonly Change[]} newest first, each once
 */
function merged(news, known) {
  if (news.length === 0) return known
  // Two shards may use one id.
  const all = new Map([...known, ...news].map((change) => [JSON.stringify(change), change]))
  return [...all.values()].sort((one, other) => Date.parse(other.at) - Date.parse(one.at)).slice(0, MAX_CHANGES)
}
