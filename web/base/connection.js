import { byId, h, setAttribute, setText } from './dom.js'
import { duration, time } from './format.js'
import { say } from './said.js'

/** The status in the page header: whether the data is current, and whether it comes from a replica. */
export class Connection {
  #dot = h('span', { class: 'dot', 'aria-hidden': 'true' })
  #text = h('span')
  #read = h('span', { class: 'badge', hidden: true })
  #wasLive = false

  constructor() {
    byId('connection').replaceChildren(this.#dot, this.#text, this.#read)
    setText(this.#text, 'Connecting')
  }

  /** @param {'live' | 'broken' | 'signed out'} state */
  state(state) {
    setAttribute(this.#dot, 'data-state', state)
    if (state === 'live' && !this.#wasLive && this.#text.dataset.lost) say('The connection is back.')
    if (state === 'broken' && this.#wasLive) {
      say('The connection is lost. The data shown is old; the page reconnects by itself.')
      this.#text.dataset.lost = 'true'
    }
    this.#wasLive = state === 'live'
    if (state === 'live') delete this.#text.dataset.lost
    setText(this.#text, { live: 'Live', broken: 'Reconnecting', 'signed out': 'Signed out' }[state])
  }

  /** @param {Pick<import('../wire.d.ts').Fleet, 'read' | 'at'>} state */
  read({ read, at }) {
    setAttribute(this.#text, 'title', `Redis’s clock: ${time(at)}`)
    this.#read.hidden = read.role !== 'replica'
    const lag = read.lagMs === undefined ? 'lag unknown' : `${duration(read.lagMs)} behind`
    setText(this.#read, `replica, ${lag}`)
  }
}
