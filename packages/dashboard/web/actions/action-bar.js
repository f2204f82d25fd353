import { h } from '../base/dom.js'
import { openAction } from './action-form.js'

/**
 * @template S
 * @typedef {object} Change
 * @property {string} label of its button
 * @property {(subject: S) => boolean} [isFor] whether it can be made now; without it, always
 * @property {(subject: S) => Omit<Parameters<typeof openAction>[1], 'onDone'>} dialog
 */

/**
 * Buttons for what can be changed. Each opens a dialog that requires a reason.
 * @template S
 */
export class ActionBar {
  /** @type {S | undefined} */
  #subject
  #buttons
  element

  /**
   * @param {string} label
   * @param {readonly Change<S>[]} changes
   * @param {{ queue: (subject: S) => string, onDone?: () => void }} terms onDone: called after a change
   */
  constructor(label, changes, { queue, onDone = () => {} }) {
    this.#buttons = changes.map(({ label: name, isFor = () => true, dialog }) => {
      const onclick = () => this.#subject && openAction(queue(this.#subject), { ...dialog(this.#subject), onDone })
      return { isFor, button: h('button', { type: 'button', onclick }, name) }
    })
    const buttons = this.#buttons.map(({ button }) => button)
    this.element = h('div', { class: 'actions', role: 'group', 'aria-label': label, hidden: true }, ...buttons)
  }

  /** @param {S | undefined} subject undefined where nothing can be changed */
  show(subject) {
    this.#subject = subject
    for (const { isFor, button } of this.#buttons) button.hidden = subject === undefined || !isFor(subject)
    this.element.hidden = this.#buttons.every(({ button }) => button.hidden)
  }
}
