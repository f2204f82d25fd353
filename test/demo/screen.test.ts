import { PassThrough } from 'node:stream'
import type { WriteStream } from 'node:tty'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { QueueProgress } from '../../workers/demo/draw.ts'
import { openScreen } from '../../workers/demo/screen.ts'

const queue: QueueProgress = {
  ...{ title: 'emails', lines: 10, accepted: 4, refused: 0, depth: 1, capacity: 5, arrived: 3 },
  ...{ halfSeconds: [1, 2], ratePerSecond: 2 },
}

/** A stream that keeps what is written, and looks like a terminal or like a pipe. */
function outputOf(isTTY: boolean): { stream: WriteStream; text: () => string } {
  const stream = new PassThrough()
  Object.assign(stream, { isTTY, columns: 80, rows: 24 })
  let text = ''
  stream.on('data', (chunk: Buffer) => {
    text += chunk.toString()
  })
  return { stream: stream as unknown as WriteStream, text: () => text }
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

test('a pipe gets one line a second', () => {
  const { stream, text } = outputOf(false)
  const screen = openScreen(stream, {})
  screen.say('hello')
  for (let tick = 0; tick < 8; tick++) {
    screen.show(`tick ${tick}`, [queue])
    vi.advanceTimersByTime(250)
  }
  screen.rest()
  const lines = text().trimEnd().split('\n')
  expect(lines[0]).toBe('hello')
  expect(lines.slice(1).map((line) => line.split(' | ')[0])).toEqual(['tick 0', 'tick 4'])
  expect(lines[1]).toBe('tick 0 | emails: accepted 4, refused 0, depth 1 of 5, departing 3/s, arrived 3 of 10')
})

test('a terminal gets a picture that is drawn over', () => {
  const { stream, text } = outputOf(true)
  const screen = openScreen(stream, {})
  screen.show('tick 0', [queue])
  expect(text()).toContain('accepted  █')
  const before = text().length
  screen.show('tick 1', [queue])
  // Up a line and clear it: the way a terminal is told to draw over.
  expect(text().slice(before)).toContain('\u001b[1A\u001b[2K')
  screen.rest()
})

test.each([{ CI: 'true' }, { TERM: 'dumb' }])('a terminal in %o gets plain lines', (env) => {
  const { stream, text } = outputOf(true)
  openScreen(stream, env).show('tick 0', [queue])
  expect(text()).toMatch(/^tick 0 \| emails: accepted 4/)
})
