import { h } from '../base/dom.js'
import { field } from './action-form.js'

/**
 * @typedef {object} FieldTerms
 * @property {string} name of the field
 * @property {string} label
 * @property {string} note
 * @property {number} [min] of a number; 1 without it
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
    this.#controls = fields.map(({ name, label, note, min = 1 }) => {
      const step = min === 1 ? 1 : 'any'
      const type =
        name === 'rate' ? { type: 'text', autocapitalize: 'off' } : { type: 'number', min, step, inputmode: 'decimal' }
      const value = String(inForce[name] ?? '')
      const control = h('input', { id: `field-${name}`, name: `${of}.${name}`, value, autocomplete: 'off', ...type })
      return { name, control, element: field(label, control, note) }
    })
  }

  get elements() {
    return this.#controls.map(({ element }) => element)
  }

  /** @returns {Record<string, string | number | null>} null means no limit */
  get changes() {
    const changed = this.#controls.flatMap(({ name, control }) => {
      const text = control.value.trim()
      if (text === control.defaultValue) return []
      return [[name, text === '' ? null : name === 'rate' ? text : Number(text)]]
    })
    if (changed.length === 0) throw new Error('Nothing is changed yet.')
    return Object.fromEntries(changed)
  }
}
