import { ApiError, findJob } from './api.js'
import { openDialog } from './dialog.js'
import { byId, h } from './dom.js'
import { say } from './said.js'

/**
 * The field that finds a job by its id in all queues; the key `/` leads to it.
 * @param {(url: string) => void} onFound called with the address of the job, where it is in one queue
 */
export function startFinding(onFound) {
  const input = /** @type {HTMLInputElement} */ (byId('find-job'))
  byId('find').addEventListener('submit', async (event) => {
    event.preventDefault()
    const id = input.value.trim()
    if (id === '') return
    const found = await findJob(id).catch((error) => error)
    if (found instanceof Error) {
      input.select()
      return say(missText(found, id))
    }
    const [only, ...others] = found.jobs
    if (others.length === 0) return onFound(addressOf(only))
    openChoice(id, found.jobs)
  })
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return
    event.preventDefault()
    input.focus()
    input.select()
  })
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof Element && target.closest('input, select, textarea, dialog') !== null
}

/**
 * @param {Error} error
 * @param {string} id
 */
function missText(error, id) {
  const isMiss = error instanceof ApiError && error.status === 404
  return isMiss ? `No queue has a job ${id}: it may have been removed.` : error.message
}

/** @param {import('../wire.d.ts').FoundJob} job */
function addressOf({ queue, id }) {
  return `?${new URLSearchParams({ queue, job: id })}`
}

/**
 * Ids are those of their queues: several may have the same.
 * @param {string} id
 * @param {readonly import('../wire.d.ts').FoundJob[]} jobs
 */
function openChoice(id, jobs) {
  const links = jobs.map((job) => {
    const link = h('a', { href: addressOf(job), 'data-route': true, onclick: () => dialog.close() }, job.queue)
    return h('li', {}, link, h('span', { class: 'muted' }, ` ${job.name}, ${job.state}`))
  })
  const dialog = openDialog(`Queues with a job ${id}`, { body: h('ul', { class: 'found' }, ...links) })
}
