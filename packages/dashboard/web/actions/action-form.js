import { ApiError, act } from '../base/api.js'
import { openDialog, tryInForm } from '../base/dialog.js'
import { h, setText } from '../base/dom.js'
import { clock, time } from '../base/format.js'
import { say } from '../base/said.js'

const MINUTE_MS = 60_000

/** What is forgotten ends by itself. */
const USUAL_MS = 60 * MINUTE_MS
/** How long a change lasts. */
const TIMES = /** @type {const} */ ([
  [15 * MINUTE_MS, '15 minutes'],
  [USUAL_MS, '1 hour'],
  [240 * MINUTE_MS, '4 hours'],
  [1440 * MINUTE_MS, '1 day'],
])

/**
 * Opens a dialog for a change: its fields, its duration, and the reason.
 * @param {string} queue
 * @param {object} terms
 * @param {string} terms.title
 * @param {string} terms.note what the change does
 * @param {string} terms.button
 * @param {string} terms.done the message afterwards
 * @param {readonly HTMLElement[]} [terms.fields]
 * @param {string} [terms.forGood] label for no duration, which has to be chosen; without it, no duration can be
 * @param {() => object} terms.action what is sent, without reason and duration
 * @param {() => void} [terms.onDone] called afterwards
 */
export function openAction(queue, { title, note, button, done, fields = [], forGood, action, onDone }) {
  const reason = h('input', {
    id: 'action-reason',
    name: 'reason',
    required: true,
    maxlength: 500,
    autocomplete: 'off',
  })
  const lasting = forGood === undefined ? undefined : new Lasting(forGood)
  const error = h('p', { class: 'error', role: 'alert' })
  const submit = h('button', { type: 'submit', class: 'primary' }, button)
  const form = h(
    'form',
    {
      class: 'action',
      onsubmit: (event) => {
        event.preventDefault()
        void tryInForm(error, submit, async () => {
          const end = lasting?.end
          const made = () => act(queue, { ...action(), ...lasting?.terms, reason: reason.value.trim() })
          if (!(await isAccepted(form, made))) return
          dialog.close()
          say([done, end].filter(Boolean).join(' '))
          onDone?.()
        })
      },
    },
    h('p', { class: 'muted' }, note),
    ...fields,
    ...(lasting ? [lasting.element] : []),
    field('Why', reason, 'Shown in the history.'),
    error,
    h(
      'div',
      { class: 'dialog-foot' },
      h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'),
      submit,
    ),
  )
  const dialog = openDialog(title, { body: form })
}

/**
 * Whether a change was made; what is wrong with one of its fields is shown there.
 * @param {HTMLFormElement} form
 * @param {() => Promise<unknown>} change
 */
async function isAccepted(form, change) {
  forgetErrors(form)
  try {
    await change()
    return true
  } catch (failure) {
    if (isShownAtField(form, failure)) return false
    throw failure
  }
}

/** @param {HTMLElement} form */
function forgetErrors(form) {
  for (const text of form.querySelectorAll('.field .error')) text.remove()
  for (const control of form.querySelectorAll('[aria-invalid]')) {
    control.removeAttribute('aria-invalid')
    control.removeAttribute('aria-errormessage')
  }
}

/**
 * Shows what is wrong with a field below its control.
 * @param {HTMLFormElement} form
 * @param {unknown} failure
 */
function isShownAtField(form, failure) {
  const name = failure instanceof ApiError ? failure.field : undefined
  const control = name === undefined ? null : form.elements.namedItem(name)
  if (!(failure instanceof ApiError) || !(control instanceof HTMLElement)) return false
  // The label says already which field it is.
  const text = failure.message.replace(/^\S+ must be/, 'Must be').replace(/^[\w.]+: /, '')
  const id = `${control.id}-error`
  control.setAttribute('aria-invalid', 'true')
  control.setAttribute('aria-errormessage', id)
  control.parentElement?.append(h('p', { class: 'error', role: 'alert', id }, text))
  control.focus()
  return true
}

/**
 * A labelled control, with a note below it.
 * @param {string} label
 * @param {HTMLInputElement | HTMLSelectElement} control with an id, and the name of the field that it is sent as
 * @param {string} [note]
 */
export function field(label, control, note) {
  if (note !== undefined) control.setAttribute('aria-describedby', `${control.id}-note`)
  return h(
    'div',
    { class: 'field' },
    h('label', { for: control.id }, label),
    control,
    note !== undefined && h('p', { class: 'muted small', id: `${control.id}-note` }, note),
  )
}

/**
 * A field for the name of a queue of dead letters.
 * @param {string} label
 * @param {readonly string[]} known the first one is filled in, the others are suggested
 */
export function deadQueueField(label, known) {
  const list = h('datalist', { id: 'action-dead-known' }, ...known.map((value) => h('option', { value })))
  const input = h('input', {
    ...{ id: 'action-dead', required: true, maxlength: 128, autocomplete: 'off', list: 'action-dead-known' },
    value: known[0] ?? '',
  })
  const note = known.length > 0 ? undefined : 'No worker of this queue has reported one.'
  const element = field(label, input, note)
  element.append(list)
  return {
    element,
    get value() {
      return input.value.trim()
    },
  }
}

/**
 * Fields to choose some of, all of them at first.
 * @param {string} label
 * @param {readonly string[]} names
 */
export function checklist(label, names) {
  const boxes = names.map((value) => h('input', { type: 'checkbox', value, checked: true }))
  const rows = boxes.map((box) => h('label', { class: 'check' }, box, box.value))
  return {
    element: h('fieldset', {}, h('legend', {}, label), ...rows),
    get chosen() {
      const chosen = boxes.filter(({ checked }) => checked).map(({ value }) => value)
      if (chosen.length === 0) throw new Error('Nothing is chosen.')
      return chosen
    },
  }
}

/** The field for how long a change lasts, which says when it ends. */
class Lasting {
  #select
  element

  /** @param {string} forGood */
  constructor(forGood) {
    const options = TIMES.map(([ms, label]) => h('option', { value: ms, selected: ms === USUAL_MS }, label))
    this.#select = h(
      'select',
      { id: 'action-time', name: 'ttlMs', onchange: () => this.#show() },
      ...options,
      h('option', { value: '' }, forGood),
    )
    this.element = field('For how long', this.#select, this.end)
  }

  /** What is sent. */
  get terms() {
    return this.#select.value === '' ? {} : { ttlMs: Number(this.#select.value) }
  }

  /** @returns {string} a sentence */
  get end() {
    const { ttlMs } = this.terms
    if (ttlMs === undefined) return 'Stays until someone ends it.'
    const at = new Date(Date.now() + ttlMs)
    const isToday = at.toDateString() === new Date().toDateString()
    return `Ends by itself at ${isToday ? clock(at, false) : time(at)}.`
  }

  #show() {
    const note = this.element.querySelector('p')
    if (note) setText(note, this.end)
  }
}
