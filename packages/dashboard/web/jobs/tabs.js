import { h, setAttribute, setText } from '../base/dom.js'

/** @typedef {{ id: string, label: string, panel: HTMLElement, onShow: () => Promise<void> }} Tab */

/** Tabs by the WAI-ARIA pattern: arrow keys move between them, and each opens when it is reached. */
export class Tabs {
  #tabs
  #buttons
  #shown = 0
  #isChosen = false
  /** Settles when the open tab has been read. @type {Promise<void> | undefined} */
  read
  element

  /**
   * @param {string} label
   * @param {readonly Tab[]} tabs
   */
  constructor(label, tabs) {
    this.#tabs = tabs
    this.#buttons = tabs.map(({ id, label }, i) =>
      h(
        'button',
        {
          type: 'button',
          role: 'tab',
          id: `tab-${id}`,
          'aria-controls': `panel-${id}`,
          onclick: () => this.#choose(i),
        },
        h('span', {}, label),
        ' ',
        h('span', { class: 'count' }),
      ),
    )
    for (const { id, panel } of tabs) {
      for (const [name, value] of Object.entries({
        role: 'tabpanel',
        id: `panel-${id}`,
        'aria-labelledby': `tab-${id}`,
      })) {
        panel.setAttribute(name, value)
      }
    }
    const list = h(
      'div',
      { class: 'tabs', role: 'tablist', 'aria-label': label, onkeydown: (event) => this.#onKey(event) },
      ...this.#buttons,
    )
    this.element = h('div', {}, list, ...tabs.map(({ panel }) => panel))
    this.#show(0)
  }

  get shown() {
    return this.#shown
  }

  /**
   * @param {number} index
   * @param {string} label
   */
  rename(index, label) {
    const shown = this.#buttons[index]?.firstElementChild
    if (shown) setText(shown, label)
  }

  /**
   * @param {number} index
   * @param {string} count shown beside the label
   */
  count(index, count) {
    const shown = this.#buttons[index]?.lastElementChild
    if (shown) setText(shown, count)
  }

  /**
   * Opens a tab, unless the user has chosen one.
   * @param {number} index
   */
  suggest(index) {
    if (!this.#isChosen && index !== this.#shown) this.#show(index)
  }

  /** @param {number} index */
  #choose(index) {
    this.#isChosen = true
    this.#show(index)
  }

  /** @param {number} index */
  #show(index) {
    this.#shown = index
    for (const [i, button] of this.#buttons.entries()) {
      setAttribute(button, 'aria-selected', String(i === index))
      button.tabIndex = i === index ? 0 : -1
    }
    for (const [i, { panel }] of this.#tabs.entries()) panel.hidden = i !== index
    this.read = this.#tabs[index]?.onShow()
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const last = this.#buttons.length - 1
    const { key } = event
    const to = { ArrowRight: this.#shown + 1, ArrowLeft: this.#shown - 1, Home: 0, End: last }[key]
    if (to === undefined) return
    event.preventDefault()
    this.#choose(to > last ? 0 : to < 0 ? last : to)
    this.#buttons[this.#shown]?.focus()
  }
}
