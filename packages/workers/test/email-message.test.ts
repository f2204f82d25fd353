import { describe, expect, test } from 'vitest'
import { InvalidPayloadError } from '../../programs/src/errors.ts'
import { messageIdOf, readMessage } from '../src/email/message.ts'
import { mail, refusedMails } from './refused-mails.ts'

const one = { allowMultipleRecipients: false }
const several = { allowMultipleRecipients: true }

test('the six fields are read, addresses taken apart', () => {
  expect(readMessage({ ...mail, cc: 'C <c@example.org>', html: '<p>Hi</p>' }, one)).toEqual({
    from: { name: 'Shop', address: 'shop@example.com' },
    to: [{ name: '', address: 'b@example.org' }],
    cc: [{ name: 'C', address: 'c@example.org' }],
    subject: 'Hello',
    text: 'Hi',
    html: '<p>Hi</p>',
  })
})

test('a body may have lines', () => {
  expect(readMessage({ ...mail, text: 'one\r\ntwo\r\n.\r\n' }, one).text).toBe('one\r\ntwo\r\n.\r\n')
})

describe.each(refusedMails)('%s', (_, data) => {
  test('is refused without repeating it', () => {
    const attempt = () => readMessage(data, one)
    expect(attempt).toThrow(InvalidPayloadError)
    expect(attempt).not.toThrow(/evil|etc/)
  })
})

test('lists are accepted where allowed, groups never', () => {
  const { to } = readMessage({ ...mail, to: 'b@example.org, C <c@example.org>' }, several)
  expect(to.map(({ address }) => address)).toEqual(['b@example.org', 'c@example.org'])
  expect(() => readMessage({ ...mail, to: 'all: b@example.org;' }, several)).toThrow(InvalidPayloadError)
  expect(() => readMessage({ ...mail, from: 'b@example.org, c@example.org' }, several)).toThrow(
    /from: expected exactly one/,
  )
  const many = Array.from({ length: 101 }, (_, index) => `b${index}@example.org`).join(', ')
  expect(() => readMessage({ ...mail, to: many }, several)).toThrow(/expected 1 to 100 addresses, got 101/)
})

test.each([
  ['quotes that escape quotes', '"\\'.repeat(16_000)],
  ['quotes', '"'.repeat(32_000)],
  ['brackets', '<'.repeat(32_000)],
  ['comments', '('.repeat(32_000)],
  ['groups', 'a:'.repeat(16_000)],
  ['addresses of one letter', 'a@'.repeat(16_000)],
  ['spaces', `a${' '.repeat(32_000)}b`],
  ['a local part', `${'a'.repeat(32_000)}@b.example`],
  ['an address of 321 bytes', `${'ä'.repeat(154)}a@bücher.example`.slice(0, 400)],
])('a list of nothing but %s is refused', (_, to) => {
  expect(() => readMessage({ ...mail, to }, several)).toThrow(InvalidPayloadError)
})

test('an address has up to 320 bytes, a name may hold an @ in its quotes', () => {
  const address = `${'ä'.repeat(152)}@example.example`
  expect(Buffer.byteLength(address)).toBe(320)
  const { to } = readMessage({ ...mail, to: `"Ann \\" @ home" <${address}>` }, one)
  expect(to).toEqual([{ name: 'Ann " @ home', address }])
  expect(() => readMessage({ ...mail, to: `a${address}` }, one)).toThrow(/^the mail was not accepted: to: /)
})

test('the Message-ID stands in the domain of the sender, also an international one', () => {
  const sentFrom = (from: string) => messageIdOf('0123', readMessage({ ...mail, from }, one))
  expect(sentFrom('Shop <shop@example.com>')).toBe('<0123@example.com>')
  expect(sentFrom('büro@bücher.example')).toBe('<0123@xn--bcher-kva.example>')
})
