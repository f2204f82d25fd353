import { Writable } from 'node:stream'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createSecretMask } from '../../../src/secret-mask.ts'
import { createErrorLog, createLogger } from '../src/log.ts'
import { createScrubber } from '../src/redact.ts'

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

const HELD = 'S3CRET_CANARY/p@ss"w\\rd+ü'
const percent = (text: string) =>
  [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')

test.each([
  ['percent-encoded', encodeURIComponent],
  ['percent-encoded, every byte in lower case', percent],
  ['percent-encoded twice', (text: string) => encodeURIComponent(encodeURIComponent(text))],
  ['in base64', (text: string) => Buffer.from(text).toString('base64')],
  ['in base64 behind a user', (text: string) => Buffer.from(`user:${text}`).toString('base64')],
  ['in base64 between others', (text: string) => Buffer.from(`me:${text}, you`).toString('base64')],
  ['in base64 for URLs', (text: string) => Buffer.from(`a${text}b`).toString('base64url')],
  ['in base64, percent-encoded', (text: string) => encodeURIComponent(Buffer.from(text).toString('base64'))],
  ['in hex', (text: string) => Buffer.from(text).toString('hex')],
  ['as JSON escapes it', (text: string) => JSON.stringify(text)],
  ['as JSON in JSON escapes it', (text: string) => JSON.stringify(JSON.stringify(text))],
  [
    'as \\u escapes',
    (text: string) => [...text].map((one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''),
  ],
  ['as HTML', (text: string) => text.replaceAll('"', '&quot;').replaceAll('/', '&#x2F;').replaceAll('ü', '&#252;')],
])('a secret is masked %s', (_, spell) => {
  const spelled = spell(HELD)
  const masked = createScrubber([HELD])(`before ${spelled} behind`)
  expect(masked).toMatch(/^before .*\[redacted\].* behind$/)
  for (let at = 0; at + 12 <= spelled.length; at += 6) expect(masked).not.toContain(spelled.slice(at, at + 12))
})

test('whatever the secret and wherever it is: neither the text nor a decoded form contains it', () => {
  const secret = fc.string({ unit: 'grapheme', minLength: 6, maxLength: 20 })
  const around = fc.string({ unit: fc.constantFrom(...'ab: =/'), maxLength: 5 })
  fc.assert(
    fc.property(secret, around, around, (held, before, behind) => {
      const scrub = createScrubber([held])
      const whole = `${before}${held}${behind}`
      expect(decodeURIComponent(scrub(encodeURIComponent(whole)))).not.toContain(held)
      expect(Buffer.from(scrub(Buffer.from(whole).toString('base64')), 'base64').toString()).not.toContain(held)
      const line = scrub(JSON.stringify({ msg: whole }))
      expect((JSON.parse(line) as { msg: string }).msg).not.toContain(held)
    }),
    { numRuns: 15 },
  )
})

test('secrets that could be read in many ways are looked for in linear time', () => {
  for (const odd of ['\\', '\\"', '%', '%25', '&amp;', '\\u005c', '/', ' ']) {
    const scrub = createScrubber([`${odd.repeat(24)}end`])
    expect(scrub(odd.repeat(400))).toBe(odd.repeat(400))
    expect(scrub(JSON.stringify(`${odd.repeat(24)}end`))).toBe('"[redacted]"')
    expect(scrub(JSON.stringify(JSON.stringify(`${odd.repeat(24)}end`)))).toContain('[redacted]')
  }
})

test('what a peer decodes of a secret in base64 is masked', () => {
  const basic = Buffer.from('shop:hunter-22').toString('base64')
  expect(createScrubber([basic])(`no user shop:hunter-22, nor hunter-22, nor ${basic}`)).toBe(
    'no user [redacted], nor [redacted], nor [redacted]',
  )
})

test('a text that was cut does not end in the beginning of a secret', () => {
  const mask = createSecretMask([HELD])
  for (const spelled of [HELD, encodeURIComponent(HELD), Buffer.from(HELD).toString('base64')]) {
    for (let length = 0; length < spelled.length; length++) {
      const cut = mask(`said ${spelled.slice(0, length)}`, true)
      expect(cut).toMatch(/^said (.{0,8}|\[redacted\].{0,4})$/)
    }
  }
  expect(mask('said nothing', true)).toBe('said nothing')
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
