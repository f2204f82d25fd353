import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { parseStatements } from '../../packages/workers/src/db-writes/statements.ts'
import { exampleSeed, makeOutbox } from '../../workers/demo/outbox/make-outbox.ts'
import { OutboxError, type OutboxLine, readOutbox } from '../../workers/demo/read-outbox.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const example = new URL('../../examples/outbox.ndjson', import.meta.url)
const statements = parseStatements(readFileSync(new URL('../../workers/demo/statements.json', import.meta.url), 'utf8'))

describe('the example outbox', () => {
  let lines: OutboxLine[]
  beforeAll(async () => {
    lines = await readOutbox(example.pathname, statements)
  })

  test('is what its generator makes, twice', () => {
    expect(readFileSync(example, 'utf8')).toBe(makeOutbox(exampleSeed))
    expect(makeOutbox(1)).toBe(makeOutbox(1))
    expect(makeOutbox(1)).not.toBe(makeOutbox(2))
  })

  test('holds 750 mails and 750 writes that the workers accept', () => {
    expect(lines.filter(({ kind }) => kind === 'email')).toHaveLength(750)
    expect(lines.filter(({ kind }) => kind === 'write')).toHaveLength(750)
  })

  test('is varied: scripts, lengths, bodies, copies, statements', () => {
    const mails = lines.flatMap((line) => (line.kind === 'email' ? [line.data] : []))
    const writes = lines.flatMap((line) => (line.kind === 'write' ? [line.data] : []))
    for (const script of [/\p{Script=Han}/u, /\p{Script=Arabic}/u, /\p{Script=Cyrillic}/u, /[ąćęłńóśźż]/u, /[äöüß]/u]) {
      expect(mails.filter(({ text }) => script.test(text ?? '')).length).toBeGreaterThan(20)
    }
    expect(Math.min(...mails.map(({ text }) => text!.length))).toBeLessThan(60)
    expect(Math.max(...mails.map(({ text }) => text!.length))).toBeGreaterThan(800)
    expect(mails.filter(({ html }) => html).length).toBeGreaterThan(100)
    expect(mails.filter(({ cc }) => cc).length).toBeGreaterThan(50)
    expect(new Set(writes.map(({ statement }) => statement))).toEqual(
      new Set(['record-order', 'record-event', 'record-audit']),
    )
  })
})

describe('an outbox of one’s own', () => {
  const mail = { kind: 'email', from: 'a@example.com', to: 'b@example.com', subject: 'Hi', text: 'x' }
  const read = (...texts: string[]) => {
    const file = join(temporaryFolder(), 'outbox.ndjson')
    writeFileSync(file, texts.join('\n'))
    return readOutbox(file, statements)
  }

  test('keeps the order and skips blank lines', async () => {
    const write = { kind: 'write', statement: 'record-event', parameters: { name: 'n', details: {} } }
    const lines = await read(JSON.stringify(mail), '', JSON.stringify(write), '  ')
    expect(lines.map(({ kind }) => kind)).toEqual(['email', 'write'])
    expect(lines[0]!.data).not.toHaveProperty('kind')
  })

  test('may begin with a byte order mark', async () => {
    expect(await read(`\uFEFF${JSON.stringify(mail)}`)).toHaveLength(1)
  })

  test.each([
    ['no JSON', 'Dear all', /line 2: .*JSON/],
    ['a list', '[]', /line 2: expected a JSON object, got \[\]/],
    ['another kind', '{"kind":"fax"}', /line 2: expected "kind" to be "email" or "write", got "fax"/],
    ['no kind', '{}', /line 2: expected "kind" to be "email" or "write", got nothing/],
    ['a mail without a body', JSON.stringify({ ...mail, text: undefined }), /line 2: .*text, an html or both/],
    [
      'two recipients',
      JSON.stringify({ ...mail, to: 'a@example.com, b@example.com' }),
      /line 2: .*to: expected exactly one address/,
    ],
    [
      'an unknown statement',
      '{"kind":"write","statement":"drop","parameters":{}}',
      /line 2: .*record-order, record-event, record-audit/,
    ],
  ])('names the line of %s', async (_, wrong, message) => {
    const failure = await read(JSON.stringify(mail), wrong).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(OutboxError)
    expect((failure as OutboxError).message).toMatch(message)
  })

  test('must not be empty or missing', async () => {
    await expect(read('', ' ')).rejects.toThrow(/expected at least one line, got none/)
    await expect(readOutbox(join(temporaryFolder(), 'missing.ndjson'), statements)).rejects.toThrow(
      /cannot read the input: ENOENT/,
    )
  })
})
