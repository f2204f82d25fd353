import { ApiError, getFacts, getFleet, logOut } from './base/api.js'
import { Connection } from './base/connection.js'
import { byId, h } from './base/dom.js'
import { startFinding } from './base/find-job.js'
import { keep, kept } from './base/kept.js'
import { loginForm } from './base/login.js'
import { Stream } from './base/stream.js'
import { startTheme } from './base/theme.js'
import { FleetView } from './fleet/fleet-view.js'

/**
 * @typedef {import('./wire.d.ts').Fleet} Fleet
 * @typedef {import('./queue/queue-view.js').QueueView} QueueView
 */

const connection = new Connection()
const main = byId('view')
const signOut = byId('sign-out')
/** @type {FleetView | QueueView | undefined} */
let view
/** Counts the views that were asked for: one that has loaded meanwhile is not shown after another. */
let asked = 0
/** @type {Stream | undefined} */
let stream
/** The last state of all queues that was received, and when. @type {Fleet | undefined} */
let known
let knownAtMs = 0
/** An older state is not shown: the stream sends the present one at once. */
const FRESH_MS = 3000
/** While the dashboard or Redis is away, the page asks again so often. */
const AGAIN_MS = 3000

startTheme()
startFinding((url) => {
  history.pushState(null, '', url)
  void tryView(true)
})
document.addEventListener('click', onLink)
for (const event of ['pointerover', 'focusin']) document.addEventListener(event, onNearLink)
addEventListener('popstate', () => void tryView(false))
signOut.addEventListener('click', async () => {
  await logOut().catch(() => {})
  askForToken()
})
void start()

async function start() {
  try {
    onFleet(await (shownQueue() === undefined ? getFleet() : getFacts()))
    await showView(false)
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return askForToken()
    showFailure(error, start)
  }
}

/** @param {boolean} moveFocus whether the user followed a link */
async function tryView(moveFocus) {
  await showView(moveFocus).catch((error) => showFailure(error, () => tryView(moveFocus)))
}

/**
 * @param {unknown} error
 * @param {() => Promise<void>} again
 */
function showFailure(error, again) {
  const text = String(error instanceof Error ? error.message : error)
  // After an update, a part of the page that it has not loaded yet is gone.
  const onclick = error instanceof ApiError ? again : () => location.reload()
  const button = h('button', { type: 'button', onclick }, 'Try again')
  const notice = h('div', { class: 'card notice', role: 'alert' }, h('p', {}, text), button)
  main.replaceChildren(notice)
  const isPassing = error instanceof ApiError && (error.status === 0 || error.status === 503)
  if (isPassing) setTimeout(() => notice.isConnected && again(), AGAIN_MS)
}

/**
 * Shows the view in the address.
 * @param {boolean} moveFocus whether the user followed a link
 */
async function showView(moveFocus) {
  closeView()
  const turn = asked
  const name = shownQueue()
  const shown = name === undefined ? new FleetView(() => listen(undefined), turn === 1) : await queueView(name)
  if (turn !== asked) return shown.close()
  view = shown
  // A page of very many queues may be sorted differently, so it is not reused for the fleet view.
  const isFresh = performance.now() - knownAtMs < FRESH_MS
  if (known && isFresh && (name !== undefined || known.total === known.queues.length)) shown.onFleet(known)
  main.replaceChildren(shown.element)
  document.title = `${shown.title} · ${known?.title ?? 'Sluice'}`
  signOut.hidden = kept('signed-in') === undefined
  listen(name)
  const job = new URLSearchParams(location.search).get('job')
  if (job !== null && !(shown instanceof FleetView)) shown.explain(job)
  if (!moveFocus) return
  main.focus({ preventScroll: true })
  scrollTo(0, 0)
}

/** The queue in the address. */
function shownQueue() {
  return new URLSearchParams(location.search).get('queue') ?? undefined
}

/** What only the page of a queue needs is most of the code: the page of all queues loads it later. */
const loadQueueView = () => import('./queue/queue-view.js')

/** @param {string} name */
async function queueView(name) {
  const { QueueView } = await loadQueueView()
  // Where there is no such queue, no stream could be about it.
  return new QueueView(name, known, { onUnknown: () => listen(undefined), onKnown: () => void tryView(false) })
}

/** @param {string | undefined} name */
function listen(name) {
  // A stream reports changes from its first event on: earlier ones are requested then.
  /** @type {'history' | 'all' | undefined} */
  let missed = 'history'
  stream?.close()
  stream = new Stream(name, view instanceof FleetView ? view.terms : undefined, {
    onFleet,
    onGone: () => {
      if (view && !(view instanceof FleetView)) void view.refill()
    },
    onQueue: (news) => {
      connection.read({ at: news.status.at, redis: news.redis ?? { role: 'unknown' }, queues: [news.status] })
      view?.onQueue(news)
      if (view && !(view instanceof FleetView)) {
        if (missed === 'all') view.restored()
        else if (missed === 'history') void view.refill()
      }
      missed = undefined
    },
    onState: (state, cause) => {
      connection.state(state, cause)
      if (state === 'signed out') return askForToken()
      if (state === 'broken' || state === 'away') missed = 'all'
    },
  })
}

/** @param {Fleet} fleet */
function onFleet(fleet) {
  known = fleet
  knownAtMs = performance.now()
  connection.read(fleet)
  view?.onFleet(fleet)
}

function closeView() {
  asked += 1
  stream?.close()
  view?.close()
  view = undefined
}

function askForToken() {
  closeView()
  keep('signed-in', undefined)
  signOut.hidden = true
  connection.state('signed out')
  for (const dialog of document.querySelectorAll('dialog')) dialog.close()
  const form = loginForm(() => {
    keep('signed-in', 'true')
    void start()
  })
  main.replaceChildren(form)
  form.querySelector('input')?.focus()
}

/**
 * Links between views open without reloading the page; the skip link adds no entry to the history.
 * @param {MouseEvent} event
 */
function onLink(event) {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return
  if (event.target instanceof Element && event.target.matches('.skip')) {
    event.preventDefault()
    return main.focus()
  }
  const link = event.target instanceof Element ? event.target.closest('a[data-route]') : null
  if (!(link instanceof HTMLAnchorElement)) return
  event.preventDefault()
  if (link.href !== location.href) history.pushState(null, '', link.href)
  void tryView(true)
}

/**
 * A link under the pointer, or with focus, is about to be followed.
 * @param {Event} event
 */
function onNearLink({ target }) {
  const link = target instanceof Element ? target.closest('a[data-route]') : null
  // A failure is shown when the link is followed.
  if (!(link instanceof HTMLAnchorElement) || link.search === '') return
  void Promise.all([loadQueueView(), import('uplot')]).catch(() => {})
}
