import { checkArgument, InvalidInputError } from 'sluice/internal'
import type { Entry, HttpRequest, Middleware, Pass } from '../middleware.ts'
import { addFields } from './core.ts'

/**
 * Combines middleware: a request passes through the stack in order, until one sends a response. That response also gets
 * the header fields of the middleware before it, whose `leave` is called at once, in reverse order.
 * @throws InvalidInputError
 */
export function inOrder(stack: readonly Middleware[]): Middleware {
  checkArgument(Array.isArray(stack), 'inOrder: its argument', 'a list of middleware', stack)
  stack.forEach((one, i) => {
    if (typeof one?.enter !== 'function') {
      throw new InvalidInputError(`middleware ${i} has no function enter; got ${one}`)
    }
  })
  const copy = [...stack]
  const [only] = copy
  if (only && copy.length === 1) return only
  return { enter: (request) => enterAll(copy, request) }
}

async function enterAll(stack: readonly Middleware[], request: HttpRequest): Promise<Entry> {
  const leaves: (() => void)[] = []
  const leave = () => leaves.reverse().forEach((one) => void one())
  let headers: Pass['headers']
  try {
    for (const middleware of stack) {
      const entry = await middleware.enter(request)
      if (entry.response) {
        leave()
        return { response: { ...entry.response, headers: { ...withHeaders(headers, entry.response.headers) } } }
      }
      headers = withHeaders(headers, entry.headers)
      if (entry.leave) leaves.push(entry.leave)
    }
  } catch (error) {
    leave()
    throw error
  }
  return { ...(headers && { headers }), ...(leaves.length > 0 && { leave }) }
}

function withHeaders(before: Pass['headers'], now: Pass['headers']): Pass['headers'] {
  if (!before || !now) return before ?? now
  const both = new Map(Object.entries(before))
  addFields(both, now)
  return Object.fromEntries(both)
}
