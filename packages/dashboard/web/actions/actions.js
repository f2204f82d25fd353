import { h } from '../base/dom.js'
import { checklist, field, openAction } from './action-form.js'
import { openRedrive } from './letter-actions.js'
import { openShapeForm } from './shape-form.js'

/** @typedef {import('../wire.d.ts').Queue} Queue */

const MODES = /** @type {const} */ ([
  ['enforce', 'Enforce: jobs are held and refused'],
  ['shadow', 'Shadow: only count what would be held or refused'],
  ['off', 'Off: neither hold nor count'],
])

/** The buttons that change a queue. Each opens a dialog that requires a reason. */
export class Actions {
  /** @type {Queue | undefined} */
  #queue
  #deadQueues
  #limits = this.#button('Change limits', openShapeForm)
  #pause = this.#button('Pause', openPause)
  #resume = this.#button('Resume', openResume)
  #mode = this.#button('Mode', openMode)
  #clear = this.#button('Clear overrides', openClear)
  #redrive = this.#button('Redrive', ({ name }) => openRedrive(name, this.#deadQueues()))
  element = h(
    'div',
    { class: 'actions', role: 'group', 'aria-label': 'Actions', hidden: true },
    ...[this.#limits, this.#pause, this.#resume, this.#mode, this.#clear, this.#redrive],
  )

  /** @param {() => readonly string[]} deadQueues the known queues of dead letters, the selected one first */
  constructor(deadQueues) {
    this.#deadQueues = deadQueues
  }

  /**
   * @param {Queue} queue
   * @param {boolean} isAllowed
   */
  show(queue, isAllowed) {
    this.#queue = queue
    this.element.hidden = !isAllowed
    const isPaused = queue.paused || queue.pausedUntil !== undefined
    this.#pause.hidden = queue.paused
    this.#resume.hidden = !isPaused
    this.#clear.hidden = Object.keys(queue.shape?.overrides ?? {}).length === 0
  }

  /**
   * @param {string} label
   * @param {(queue: Queue) => void} open
   */
  #button(label, open) {
    return h('button', { type: 'button', onclick: () => this.#queue && open(this.#queue) }, label)
  }
}

/** @param {Queue} queue */
function openPause({ name }) {
  openAction(name, {
    title: 'Pause',
    note: 'No job starts during the pause. Running jobs continue, and new jobs are accepted while there is room.',
    button: 'Pause',
    done: 'The queue is paused.',
    forGood: 'Until it is resumed',
    action: () => ({ action: 'pause' }),
  })
}

/** @param {Queue} queue */
function openResume({ name }) {
  openAction(name, {
    title: 'Resume',
    note: 'Lifts every pause of the queue. Jobs leave again at the rate.',
    button: 'Resume',
    done: 'The queue is resumed.',
    action: () => ({ action: 'resume' }),
  })
}

/** @param {Queue} queue */
function openMode({ name, shape }) {
  const now = shape?.mode ?? 'enforce'
  const options = MODES.map(([mode, label]) => h('option', { value: mode, selected: mode === now }, label))
  const select = h('select', { id: 'action-mode' }, ...options)
  openAction(name, {
    title: 'Mode',
    note: 'Whether the shape is in force.',
    button: 'Change',
    done: 'The mode is changed.',
    fields: [field('Mode', select)],
    forGood: 'Until it is cleared',
    action: () => ({ action: 'setMode', mode: select.value }),
  })
}

/** @param {Queue} queue */
function openClear({ name, shape }) {
  const list = checklist('Overrides', Object.keys(shape?.overrides ?? {}))
  openAction(name, {
    title: 'Clear overrides',
    note: 'The declared values apply again.',
    button: 'Clear',
    done: 'The overrides are cleared.',
    fields: [list.element],
    action: () => ({ action: 'clearShape', fields: list.chosen }),
  })
}
