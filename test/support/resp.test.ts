import fc from 'fast-check'
import { expect, test } from 'vitest'
import { commandWords, RespSplitter } from './resp.ts'

const bulk = (text: string) => `$${Buffer.byteLength(text)}\r\n${text}\r\n`
const array = (values: string[]) => `*${values.length}\r\n${values.join('')}`

const text = fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('\r\n', '$3\r\n', '*1\r\n', ''))
const leaf = fc.oneof(
  text.map(bulk),
  fc.constantFrom(
    '+OK\r\n',
    '-ERR no\r\n',
    ':12\r\n',
    '$-1\r\n',
    '*-1\r\n',
    '*0\r\n',
    '_\r\n',
    '#t\r\n',
    ',1.5\r\n',
    '(99\r\n',
  ),
  fc.tuple(leafText(), leafText()).map(([key, value]) => `%1\r\n${key}${value}`),
  leafText().map((value) => `=${value.length + 4}\r\ntxt:${value}\r\n`),
)
const value = fc.oneof(
  leaf,
  fc.array(leaf, { maxLength: 4 }).map(array),
  fc.array(fc.array(leaf, { maxLength: 3 }).map(array), { maxLength: 3 }).map(array),
)

function leafText() {
  return fc.constantFrom('+a\r\n', ':1\r\n', '_\r\n')
}

test('however a stream is cut into chunks, its values come out whole and in order', () => {
  fc.assert(
    fc.property(
      fc.array(value, { maxLength: 6 }),
      fc.array(fc.nat(20), { minLength: 1, maxLength: 20 }),
      (values, cuts) => {
        const stream = Buffer.from(values.join(''))
        const splitter = new RespSplitter()
        const found: string[] = []
        for (let position = 0, turn = 0; position < stream.length; turn++) {
          const size = cuts[turn % cuts.length]! + 1
          for (const { raw } of splitter.push(stream.subarray(position, position + size))) found.push(raw.toString())
          position += size
        }
        expect(found).toEqual(values)
      },
    ),
    { numRuns: 500 },
  )
})

test('a big string that comes in many chunks is one value', () => {
  const stream = Buffer.from(array([bulk('SET'), bulk('key'), bulk('x'.repeat(5_000_000))]))
  const splitter = new RespSplitter()
  let frames = 0
  for (let position = 0; position < stream.length; position += 65_536) {
    frames += splitter.push(stream.subarray(position, position + 65_536)).length
  }
  expect(frames).toBe(1)
})

test('the words of a command are read as sent', () => {
  expect(commandWords(Buffer.from(array(['SET', 'ключ', 'a\r\nb'].map(bulk))))).toEqual(['SET', 'ключ', 'a\r\nb'])
  expect(commandWords(Buffer.from('PING\r\n'))).toBeUndefined()
})
