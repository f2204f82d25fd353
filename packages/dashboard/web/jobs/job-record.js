import { h, setText } from '../base/dom.js'
import { count, NONE } from '../base/format.js'

/** What a job left behind: attempts, progress, stack traces, its log and, where data is shown, its data and result. */
export class JobRecord {
  #attempts = h('dd')
  #worker = h('dd')
  #progress = h('dd')
  #traces = part('Stack traces')
  #logs = part('Log, last lines')
  #data = part('Data')
  #result = part('Result')
  element = h(
    'div',
    { hidden: true },
    h(
      'dl',
      { class: 'facts-list' },
      ...[h('dt', {}, 'Worker'), this.#worker],
      ...[h('dt', {}, 'Attempts'), this.#attempts],
      ...[h('dt', {}, 'Progress'), this.#progress],
    ),
    ...[this.#traces, this.#logs, this.#data, this.#result].map(({ element }) => element),
  )

  /** @param {import('../wire.d.ts').JobInDetail} job */
  show({ attemptsMade, worker = NONE, progress, stacktrace, logs, data, returnvalue }) {
    this.element.hidden = false
    setText(this.#worker, worker)
    setText(this.#attempts, count(attemptsMade))
    setText(this.#progress, JSON.stringify(progress))
    this.#traces.show(stacktrace.join('\n\n'))
    this.#logs.show(logs.join('\n'))
    this.#data.show(textOf(data))
    this.#result.show(textOf(returnvalue))
  }
}

/** @param {unknown} value undefined where data is hidden */
function textOf(value) {
  return value === undefined || value === null ? '' : JSON.stringify(value, null, 2)
}

/**
 * A text below a title, hidden while it is empty.
 * @param {string} title
 */
function part(title) {
  const text = h('pre', { tabindex: '0', role: 'region', 'aria-label': title })
  const element = h('div', { class: 'record', hidden: true }, h('h3', {}, title), text)
  return {
    element,
    /** @param {string} shown */
    show(shown) {
      element.hidden = shown === ''
      setText(text, shown)
    },
  }
}
