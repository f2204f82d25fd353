/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | undefined | ((event: any) => void)>} Props */

const SVG = 'http://www.w3.org/2000/svg'

/**
 * Creates an element. `onclick` and the like are listeners, all other properties attributes. Strings become text, never
 * markup.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Props} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag)
  setProps(element, props)
  addChildren(element, children)
  return element
}

/**
 * Creates an SVG element, as {@link h} does for HTML.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Props} [props]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function s(tag, props = {}, ...children) {
  const element = /** @type {SVGElementTagNameMap[T]} */ (document.createElementNS(SVG, tag))
  setProps(element, props)
  addChildren(element, children)
  return element
}

/**
 * Sets the text of an element if it differs.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}

/**
 * Sets an attribute if it differs; undefined removes it.
 * @param {Element} element
 * @param {string} name
 * @param {string | number | undefined} value
 */
export function setAttribute(element, name, value) {
  if (value === undefined) element.removeAttribute(name)
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value))
}

/**
 * Makes these the children of an element, in this order. Children in the right place are not moved, so that they keep
 * focus.
 * @param {Element} parent
 * @param {readonly Element[]} wanted
 */
export function setChildren(parent, wanted) {
  const keep = new Set(wanted)
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove()
  let next = parent.firstElementChild
  for (const child of wanted) {
    if (child === next) next = next.nextElementSibling
    else parent.insertBefore(child, next)
  }
}

/**
 * @param {string} id of an element of index.html
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id)
  if (!element) throw new Error(`the page has no element #${id}`)
  return element
}

/**
 * @param {Element} element
 * @param {Props} props
 */
function setProps(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === 'function') element.addEventListener(name.slice(2), value)
    else if (value === true) element.setAttribute(name, '')
    else if (value !== undefined && value !== false) element.setAttribute(name, String(value))
  }
}

/**
 * @param {Element} element
 * @param {readonly Child[]} children
 */
function addChildren(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue
    element.append(child instanceof Node ? child : String(child))
  }
}
