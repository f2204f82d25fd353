import { ApiError, getFleet, logOut } from './base/api.js'
import { Connection } from './base/connection.js'
import { byId, h } from './base/dom.js'
import { keep, kept } from './base/kept.js'
import { loginForm } from './base/login.js'
import { Stream } from './base/stream.js'
import { startTheme } from './base/theme.js'
import { FleetView } from './fleet/fleet-view.js'
import { QueueView } from './queue/queue-view.js'

/** @typedef {import('./wire.d.ts').Fleet} Fleet */

const connection = new Connection()
const main = byId('view')
const signOut = byId('sign-out')
/** @type {FleetView | QueueView | undefined} */
let view
/** @type {Stream | undefined} */
let stream
/** The last state of all queues that was received. @type {Fleet | undefined} */
let known

startTheme()
document.addEventListener('click', onLink)
addEventListener('popstate', () => showView(false))
signOut.addEventListener('click', async () => {
  await logOut().catch(() => {})
  askForToken()
})
void start()

async function start() {
  try {
    onFleet(await getFleet())
    showView(false)
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return askForToken()
    const again = h('button', { type: 'button', onclick: start }, 'Try again')
    main.replaceChildren(
      h(
        'div',
        { class: 'card notice', role: 'alert' },
        h('p', {}, String(error instanceof Error ? error.message : error)),
        again,
      ),
    )
  }
}

/**
 * Shows the view in the address.
 * @param {boolean} moveFocus whether the user followed a link
 */
function showView(moveFocus) {
  closeView()
  const params = new URLSearchParams(location.search)
  const name = params.get('queue') ?? undefined
  // Where there is no such queue, no stream could be about it.
  const terms = { onUnknown: () => listen(undefined), onKnown: () => showView(false) }
  const shown = name === undefined ? new FleetView(() => listen(undefined)) : new QueueView(name, known, terms)
  view = shown
  // A page of very many queues may be sorted differently, so it is not reused for the fleet view.
  if (known && (shown instanceof QueueView || known.total === known.queues.length)) shown.onFleet(known)
  main.replaceChildren(shown.element)
  document.title = `${shown.title} · ${known?.title ?? 'Sluice'}`
  signOut.hidden = kept('signed-in') === undefined
  listen(name)
  const job = params.get('job')
  if (job !== null && shown instanceof QueueView) shown.explain(job)
  if (!moveFocus) return
  main.focus({ preventScroll: true })
  scrollTo(0, 0)
}

/** @param {string | undefined} name */
function listen(name) {
  // A stream reports changes from its first event on: earlier ones are requested then.
  /** @type {'history' | 'all' | undefined} */
  let missed = 'history'
  stream?.close()
  stream = new Stream(name, view instanceof FleetView ? view.terms : undefined, {
    onFleet,
    onQueue: (news) => {
      view?.onQueue(news)
      if (view instanceof QueueView && missed === 'all') view.restored()
      else if (view instanceof QueueView && missed === 'history') view.refill()
      missed = undefined
    },
    onState: (state) => {
      connection.state(state)
      if (state === 'signed out') return askForToken()
      if (state === 'broken') missed = 'all'
    },
  })
}

/** @param {Fleet} fleet */
function onFleet(fleet) {
  known = fleet
  connection.read(fleet)
  view?.onFleet(fleet)
}

function closeView() {
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
  showView(true)
}
