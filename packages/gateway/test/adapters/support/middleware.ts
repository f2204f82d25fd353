import { expect, vi } from 'vitest'
import type { Entry, HttpRequest, Middleware } from '../../../src/middleware.ts'

/** A middleware that asks a function, and remembers who came. */
export function middlewareOf(enter: Middleware['enter']): Middleware & { readonly came: HttpRequest[] } {
  const came: HttpRequest[] = []
  return {
    came,
    enter(request) {
      came.push(request)
      return enter(request)
    },
  }
}

/** A middleware that lets all pass, and counts who has left. */
export function turnstile(entry: Omit<Entry, 'response'> = {}) {
  const leave = vi.fn()
  return { ...middlewareOf(() => ({ ...entry, leave })), leave }
}

/** Waits for that many calls, and sees that no more come while others have their turn. */
export async function expectCalls(spy: ReturnType<typeof vi.fn>, times: number): Promise<void> {
  await vi.waitFor(() => expect(spy).toHaveBeenCalledTimes(times), { timeout: 60_000, interval: 5 })
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
  expect(spy).toHaveBeenCalledTimes(times)
}

/** A promise, and who settles it. */
export function held<T = void>(): { readonly promise: Promise<T>; readonly release: (value: T) => void } {
  let release: (value: T) => void = () => {}
  const promise = new Promise<T>((resolve) => {
    release = resolve
  })
  return { promise, release }
}
