import { byId, h, setAttribute, setChildren, setText } from './dom.js'
import { clock, duration, time } from './format.js'
import { deletedText, redisBadges, redisText, refusalText } from './redis-text.js'
import { say } from './said.js'

/** Data of this age is old: newer arrives once a second. */
const OLD_MS = 3000

/** @typedef {'live' | 'broken' | 'away' | 'signed out'} State */

/** The page header: whether the data is current, and how Redis is; below it what is wrong with them. */
export class Connection {
  #dot = h('span', { class: 'dot', 'aria-hidden': 'true' })
  #text = h('span')
  #redis = h('span', { class: 'redis' })
  #badges = h('span', { class: 'badges' })
  #stale = h('p', { role: 'alert' })
  /** Apart from it: screen readers would read the whole again each second. */
  #age = h('p')
  #refusal = h('p', { role: 'alert' })
  #old = h('div', { class: 'trouble', hidden: true }, this.#stale, this.#age)
  #full = h('div', { class: 'trouble', hidden: true }, this.#refusal)
  /** @type {State | undefined} */
  #state
  #cause = ''
  /** When the data was read, on Redis's clock, and received. @type {{ at: string, receivedMs: number } | undefined} */
  #known

  constructor() {
    byId('connection').replaceChildren(this.#dot, this.#text, this.#redis, this.#badges)
    byId('trouble').replaceChildren(this.#old, this.#full)
    setText(this.#text, 'Connecting')
    setInterval(() => this.#showAge(), 1000)
  }

  /**
   * @param {State} state
   * @param {string} [cause] why Redis is away
   */
  state(state, cause = '') {
    const before = this.#state
    this.#state = state
    this.#cause = cause
    setAttribute(this.#dot, 'data-state', state)
    const words = { live: 'Live', broken: 'Reconnecting', away: 'Redis is away', 'signed out': 'Signed out' }
    setText(this.#text, words[state])
    if (state === 'live' && (before === 'broken' || before === 'away')) say('The connection is back.')
    if (state === 'broken' && before === 'live') {
      say('The connection is lost. The data shown is old; the page reconnects by itself.')
    }
    this.#showAge()
  }

  /** @param {Pick<import('../wire.d.ts').Fleet, 'redis' | 'at' | 'queues'>} read */
  read({ redis, at, queues }) {
    this.#known = { at, receivedMs: performance.now() }
    const facts = redisText(redis)
    setText(this.#redis, facts)
    for (const element of [this.#text, this.#redis])
      setAttribute(element, 'title', `${facts}. Redis’s clock: ${time(at)}`)
    const deleted = deletedText(queues, at)
    setChildren(
      this.#badges,
      redisBadges(redis, deleted).map(({ kind, label, title }) =>
        h('span', { class: 'badge', 'data-kind': kind, title }, label),
      ),
    )
    const refusal = refusalText(redis)
    this.#full.hidden = refusal === ''
    setText(this.#refusal, refusal === '' || deleted === '' ? refusal : `${refusal} ${deleted}.`)
    this.#showAge()
  }

  #showAge() {
    const isOff = this.#state === 'broken' || this.#state === 'away'
    const ageMs = this.#known && performance.now() - this.#known.receivedMs
    const isOld = isOff && ageMs !== undefined && ageMs >= OLD_MS
    this.#old.hidden = !isOld
    byId('view').toggleAttribute('data-stale', isOld)
    if (!this.#known || !isOld) return
    setText(this.#stale, `${this.#cause || 'The dashboard does not answer'}. The page goes on by itself.`)
    setText(this.#age, `The numbers are from ${clock(new Date(this.#known.at))}, ${duration(ageMs)} ago.`)
  }
}
