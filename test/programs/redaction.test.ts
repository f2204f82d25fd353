import { Writable } from 'node:stream'
import { expect, test } from 'vitest'
import { createErrorLog, createLogger } from '../../src/programs/log.ts'
import { createScrubber } from '../../src/programs/redact.ts'

const CANARY = 'S3CRET_CANARY/p@ss"w\\rd'
const url = `redis://user:${encodeURIComponent(CANARY)}@redis.internal:6379/0`

function logLines(write: (log: ReturnType<typeof createLogger>) => void): string {
  let lines = ''
  const destination = new Writable({
    write(chunk, _encoding, done) {
      lines += chunk
      done()
    },
  })
  write(createLogger({ name: 'test', level: 'trace', scrub: createScrubber([url, 'token-CANARY-1']), destination }))
  return lines
}

test.each([
  ['a URL in a message', new Error(`connect failed: ${url}`)],
  ['the password alone', new Error(`WRONGPASS for ${CANARY}`)],
  ['the password percent-encoded', new Error(encodeURIComponent(CANARY))],
  ['a property of an error', Object.assign(new Error('Invalid URL'), { input: url, nested: { deep: [CANARY] } })],
  ['the cause of an error', new Error('outer', { cause: new Error(url) })],
  ['a token that is no URL', new Error('bad token-CANARY-1')],
])('no secret reaches the log through %s', (_, err) => {
  const lines = logLines((log) => {
    log.error({ err, url, job: { data: CANARY } }, `while at ${url}`)
  })
  expect(lines).toContain('while at redis://')
  expect(lines).not.toContain('CANARY')
  expect(() => JSON.parse(lines)).not.toThrow()
})

test('credentials of a URL that was not declared secret are masked, the rest stays readable', () => {
  const scrub = createScrubber([])
  expect(scrub('at postgres://app:p@ss@db.internal:5432/shop?x=1 now')).toBe(
    'at postgres://[redacted]@db.internal:5432/shop?x=1 now',
  )
  expect(scrub('mail from a@b.example via https://example.com/@handle')).toBe(
    'mail from a@b.example via https://example.com/@handle',
  )
})

test('errors are logged once a second, with how many were left out', () => {
  let nowMs = 0
  const lines = logLines((log) => {
    const onError = createErrorLog(log, () => nowMs)
    onError(new Error('first'))
    nowMs = 999
    onError(new Error('second'))
    onError(new Error('third'))
    nowMs = 1000
    onError(new Error('fourth'))
  })
  const records = lines
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { err: { message: string }; suppressed?: number })
  expect(records.map(({ err, suppressed }) => [err.message, suppressed])).toEqual([
    ['first', undefined],
    ['fourth', 2],
  ])
})
