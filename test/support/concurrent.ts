import { AsyncLocalStorage } from 'node:async_hooks'
import {
  aroundEach,
  type TestContext,
  expect as vitestExpect,
  onTestFinished as vitestOnTestFinished,
  test as vitestTest,
} from 'vitest'

// Vitest knows one current test in a process: where several run at the same time, it is another one, or none. What is
// exported here is about the test that the caller runs in.
const running = new AsyncLocalStorage<TestContext>()

/** For a file with concurrent tests: call it at the top. They wait for most of their time, and use keys of their own. */
export function useConcurrentTests(): void {
  aroundEach((runTest, context) => running.run(context, runTest))
}

/** A test that runs beside the others of its file. */
export const test: typeof vitestTest.concurrent = vitestTest.concurrent

export function onTestFinished(...args: Parameters<typeof vitestOnTestFinished>): void {
  const register = running.getStore()?.onTestFinished ?? vitestOnTestFinished
  register(...args)
}

function ofTest(): typeof vitestExpect {
  return running.getStore()?.expect ?? vitestExpect
}

/** With `expect.poll`, which belongs to a test. */
export const expect: typeof vitestExpect = new Proxy(vitestExpect, {
  apply: (_, __, args: Parameters<typeof vitestExpect>) => ofTest()(...args),
  get: (_, name) => Reflect.get(ofTest(), name),
})

/** What each test collects for itself, in files with concurrent tests and in others. */
export class PerTest<T> {
  readonly #collected = new Map<TestContext | undefined, T[]>()

  /** That of the test that asks. */
  get list(): T[] {
    const test = running.getStore()
    const list = this.#collected.get(test) ?? []
    this.#collected.set(test, list)
    return list
  }
}
