import { h } from '../base/dom.js'
import { openAction } from './action-form.js'

/** What resuming a group lifts: a pause, and what the downstream's answers hold. */
const HOLDS = ['paused', 'limited', 'slowed', 'crowded']

/** The buttons that change one group. Each opens a dialog that requires a reason. */
export class GroupActions {
  #pause
  #resume
  element

  /**
   * @param {string} queue
   * @param {string} group
   */
  constructor(queue, group) {
    this.#pause = h('button', { type: 'button', onclick: () => openPause(queue, group) }, 'Pause group')
    this.#resume = h('button', { type: 'button', onclick: () => openResume(queue, group) }, 'Resume group')
    this.element = h(
      'div',
      { class: 'actions', role: 'group', 'aria-label': 'Actions of the group', hidden: true },
      this.#pause,
      this.#resume,
    )
  }

  /** @param {import('../wire.d.ts').Group} group */
  show({ overrides }) {
    this.element.hidden = false
    // As with a queue, a pause that ends by itself can be replaced.
    this.#pause.hidden = overrides.paused !== undefined && overrides.paused.until === undefined
    this.#resume.hidden = !HOLDS.some((hold) => overrides[hold] !== undefined)
  }
}

/**
 * @param {string} queue
 * @param {string} group
 */
function openPause(queue, group) {
  openAction(queue, {
    title: `Pause group ${group}`,
    note: 'No job of the group starts during the pause; other groups continue. Running jobs continue, and new jobs are accepted while there is room.',
    button: 'Pause',
    done: 'The group is paused.',
    forGood: 'Until it is resumed',
    action: () => ({ action: 'pauseGroup', group }),
  })
}

/**
 * @param {string} queue
 * @param {string} group
 */
function openResume(queue, group) {
  openAction(queue, {
    title: `Resume group ${group}`,
    note: 'Lifts the pause of the group, and what answers of the downstream hold. Its jobs leave again at its rate.',
    button: 'Resume',
    done: 'The group is resumed.',
    action: () => ({ action: 'resumeGroup', group }),
  })
}
