import { ApiError, eventsUrl, getFleet } from './api.js'

const SILENCE_MS = 6000
const RETRIES_MS = [1000, 2000, 4000, 8000, 15_000]

/**
 * @typedef {import('../wire.d.ts').Fleet} Fleet
 * @typedef {import('../wire.d.ts').QueueNews} QueueNews
 * @typedef {object} Listener
 * @property {(fleet: Fleet) => void} onFleet
 * @property {(news: QueueNews) => void} onQueue
 * @property {() => void} onGone called where the queue is no more
 * @property {(state: 'live' | 'broken' | 'away' | 'signed out', cause?: string) => void} onState `away`: Redis is, and why
 */

/** The server's events. A stream that broke, or is silent for too long, is reopened after a growing delay. */
export class Stream {
  #queue
  #terms
  #listener
  /** @type {EventSource | undefined} */
  #source
  #failures = 0
  /** Whether Redis is, as far as is known: the stream may then be silent for longer. */
  #isAway = false
  #closed = false
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer
  #retryNow = () => {
    if (!this.#source) this.#open()
  }

  /**
   * @param {string | undefined} queue whose events are wanted; undefined: those of the fleet
   * @param {import('../wire.d.ts').PageTerms | undefined} terms the page to show of very many queues
   * @param {Listener} listener
   */
  constructor(queue, terms, listener) {
    this.#queue = queue
    this.#terms = terms
    this.#listener = listener
    addEventListener('online', this.#retryNow)
    this.#open()
  }

  close() {
    this.#closed = true
    removeEventListener('online', this.#retryNow)
    this.#stop()
  }

  #open() {
    this.#stop()
    const source = new EventSource(eventsUrl(this.#queue, this.#terms))
    this.#source = source
    source.addEventListener('fleet', ({ data }) => this.#heard(() => this.#listener.onFleet(JSON.parse(data))))
    source.addEventListener('queue', ({ data }) => this.#heard(() => this.#listener.onQueue(JSON.parse(data))))
    source.addEventListener('gone', () => this.#heard(() => this.#listener.onGone()))
    source.addEventListener('unavailable', ({ data }) => this.#away(JSON.parse(data).detail))
    source.addEventListener('error', () => this.#broke())
    this.#watch()
  }

  #stop() {
    clearTimeout(this.#timer)
    this.#source?.close()
    this.#source = undefined
  }

  /** @param {() => void} notify */
  #heard(notify) {
    this.#failures = 0
    this.#isAway = false
    this.#watch()
    this.#listener.onState('live')
    notify()
  }

  /** @param {string} cause */
  #away(cause) {
    this.#isAway = true
    this.#watch()
    this.#listener.onState('away', cause)
  }

  #watch() {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#broke(), SILENCE_MS)
  }

  async #broke() {
    this.#stop()
    const waitMs = RETRIES_MS[Math.min(this.#failures, RETRIES_MS.length - 1)] ?? 1000
    this.#failures += 1
    if (!this.#isAway) this.#listener.onState('broken')
    // The stream itself does not report why it failed.
    const failure = await getFleet().catch((error) => error)
    if (this.#closed || this.#source) return
    if (failure instanceof ApiError && failure.status === 401) return this.#listener.onState('signed out')
    this.#isAway = failure instanceof ApiError && failure.status === 503
    if (this.#isAway) this.#listener.onState('away', failure.message)
    else this.#listener.onState('broken')
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#open(), waitMs * (0.75 + Math.random() / 2))
  }
}
