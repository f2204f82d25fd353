import { afterAll, expect as vitestExpect } from 'vitest'
import { expect, onTestFinished, PerTest, test, useConcurrentTests } from './concurrent.ts'

useConcurrentTests()

const names = ['first', 'second', 'third']
const lists = new PerTest<string>()
const cleared: string[] = []
let begun = 0

afterAll(() => {
  vitestExpect(cleared.toSorted()).toEqual(names.toSorted())
})

test.each(names)('the %s of tests that run at once has its own clean-up, list and expect', async (name) => {
  lists.list.push(name)
  begun += 1
  await expect.poll(() => begun).toBe(names.length)
  onTestFinished(() => {
    cleared.push(...lists.list)
  })
  expect(lists.list).toEqual([name])
  expect(expect.getState().currentTestName).toContain(name)
})
