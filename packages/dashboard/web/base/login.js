import { ApiError, logIn } from './api.js'
import { h, setText } from './dom.js'

/**
 * A form for a token.
 * @param {() => void} onDone called once the server has accepted it
 * @returns {HTMLElement}
 */
export function loginForm(onDone) {
  const input = h('input', { id: 'token', type: 'password', required: true, autocomplete: 'current-password' })
  const error = h('p', { class: 'error', role: 'alert' })
  const button = h('button', { type: 'submit', class: 'primary' }, 'Sign in')
  const form = h(
    'form',
    {
      class: 'login card',
      onsubmit: async (event) => {
        event.preventDefault()
        button.disabled = true
        const failure = await logIn(input.value.trim()).catch((thrown) => thrown)
        button.disabled = false
        if (!failure) return onDone()
        setText(error, textOf(failure))
        input.select()
        input.focus()
      },
    },
    h('h1', {}, 'Sign in'),
    h('p', { class: 'muted' }, 'This dashboard requires a token.'),
    h('label', { for: 'token' }, 'Token'),
    input,
    error,
    button,
  )
  return form
}

/** @param {unknown} failure */
function textOf(failure) {
  if (!(failure instanceof ApiError)) return 'Something went wrong.'
  return failure.status === 401 ? 'The token was refused.' : failure.message
}
