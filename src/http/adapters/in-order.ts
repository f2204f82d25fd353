import { InvalidInputError } from '../../errors.ts'
import type { Door, Entry, HttpRequest, Pass } from '../door.ts'
import { withHeaders } from './answer-headers.ts'

/**
 * Combines several doors: a request goes through them in order, until one answers. The answer also has the fields of
 * the doors before it; those doors are left at once, the last one first.
 * @throws InvalidInputError
 */
export function inOrder(doors: readonly Door[]): Door {
  doors.forEach((door, i) => {
    if (typeof door?.enter !== 'function') throw new InvalidInputError(`door ${i} has no function enter; got ${door}`)
  })
  const row = [...doors]
  const [only] = row
  if (only && row.length === 1) return only
  return { enter: (request) => enterAll(row, request) }
}

async function enterAll(doors: readonly Door[], request: HttpRequest): Promise<Entry> {
  const leaves: (() => void)[] = []
  const leave = () => leaves.reverse().forEach((one) => void one())
  let headers: Pass['headers']
  try {
    for (const door of doors) {
      const entry = await door.enter(request)
      if (entry.answer) {
        leave()
        return { answer: { ...entry.answer, headers: { ...withHeaders(headers, entry.answer.headers) } } }
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
