import { h, setAttribute } from '../base/dom.js'
import { field } from './action-form.js'

/**
 * @typedef {object} FieldTerms
 * @property {string} name of the field
 * @property {string} label
 * @property {string} note
 * @property {number} [min] of a number; 1 without it
 * @property {boolean} [isText] whether it may be more than a number, as rates are
 * @property {readonly string[]} [options] to choose from
 */

/** Controls for fields that are changed, each with the value in force: only what is changed is sent. */
export class FieldsForm {
  #controls

  /**
   * @param {string} of what the fields are a part of, in the request
   * @param {readonly FieldTerms[]} fields
   * @param {Readonly<Record<string, unknown>>} inForce
   */
  constructor(of, fields, inForce) {
    this.#controls = fields.map((terms) => {
      const given = inForce[terms.name] ?? ''
      const isSchedule = typeof given === 'object'
      const value = isSchedule ? '' : String(given)
      const control = controlOf(of, terms, value)
      if (isSchedule) setAttribute(control, 'placeholder', 'follows a schedule')
      return { name: terms.name, value, control, element: field(terms.label, control, terms.note) }
    })
  }

  get elements() {
    return this.#controls.map(({ element }) => element)
  }

  /** @returns {Record<string, string | number | null>} null means no limit */
  get changes() {
    const changed = this.#controls.flatMap(({ name, value, control }) => {
      const text = control.value.trim()
      if (text === value) return []
      return [[name, text === '' ? null : Number.isNaN(Number(text)) ? text : Number(text)]]
    })
    if (changed.length === 0) throw new Error('Nothing is changed yet.')
    return Object.fromEntries(changed)
  }
}

/**
 * @param {string} of
 * @param {FieldTerms} terms
 * @param {string} value
 */
function controlOf(of, { name, min = 1, isText = name === 'rate', options }, value) {
  const own = { id: `field-${name}`, name: `${of}.${name}` }
  if (options) {
    const all = ['', ...options]
    return h('select', own, ...all.map((one) => h('option', { value: one, selected: one === value }, one || 'none')))
  }
  const step = min === 1 ? 1 : 'any'
  const type = isText ? { type: 'text', autocapitalize: 'off' } : { type: 'number', min, step, inputmode: 'decimal' }
  return h('input', { ...own, value, autocomplete: 'off', ...type })
}
