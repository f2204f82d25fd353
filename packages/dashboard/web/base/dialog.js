import { h, setText } from './dom.js'

let made = 0

/**
 * Opens a native dialog: focus begins at its first field, or else at its title, stays in it, and goes back once Escape has
 * closed it. It is removed when closed.
 * @param {string} title
 * @param {{ body: HTMLElement, onClose?: () => void, className?: string }} terms
 * @returns {HTMLDialogElement} open
 */
export function openDialog(title, { body, onClose, className = '' }) {
  made += 1
  const id = `dialog-${made}`
  const close = h(
    'button',
    { type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => dialog.close() },
    '×',
  )
  const heading = h('h2', { id, tabindex: -1 }, title)
  /** @type {HTMLDialogElement} */
  const dialog = h(
    'dialog',
    {
      class: className,
      'aria-labelledby': id,
      onclose: () => {
        dialog.remove()
        onClose?.()
      },
      // A click on the backdrop.
      onclick: (event) => event.target === dialog && dialog.close(),
    },
    h('div', { class: 'dialog-box' }, h('div', { class: 'dialog-head' }, heading, close), body),
  )
  document.body.append(dialog)
  dialog.showModal()
  // The browser would choose the button that closes it.
  const [field = heading] = body.querySelectorAll('input, select')
  if (field instanceof HTMLElement) field.focus()
  return dialog
}

/**
 * Runs the action of a form, and shows its error in the form.
 * @param {HTMLElement} error where the error is shown
 * @param {HTMLButtonElement} button that was pressed
 * @param {() => Promise<void>} run
 */
export async function tryInForm(error, button, run) {
  button.disabled = true
  setText(error, '')
  try {
    await run()
  } catch (failure) {
    setText(error, failure instanceof Error ? failure.message : String(failure))
  } finally {
    button.disabled = false
  }
}
