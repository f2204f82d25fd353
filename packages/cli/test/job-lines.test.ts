import { Readable } from 'node:stream'
import { describe, expect, test } from 'vitest'
import { CommandError } from '../src/cli.ts'
import { jobsIn, parseJobLine } from '../src/job-file.ts'

test.each([
  ['{"name":"a"}', { name: 'a', data: {}, opts: {} }],
  ['{"name":"a","data":null,"opts":{"cost":2}}', { name: 'a', data: null, opts: { cost: 2 } }],
  [
    '{"name":"a","data":[1],"opts":{"attempts":3,"backoff":{"type":"exponential","delay":100},"jobId":"x","lifo":true}}',
    { data: [1], opts: { attempts: 3, backoff: { type: 'exponential', delay: 100 }, jobId: 'x', lifo: true } },
  ],
  ['{"name":"a","opts":{"keys":{"model":"large"}}}', { opts: { keys: { model: 'large' } } }],
  ['{"name":"a","opts":{"group":{"id":"acme"}}}', { opts: { group: { id: 'acme' } } }],
  [
    '{"name":"a","opts":{"mustStartBefore":"2999-01-01T00:00:00Z"}}',
    { opts: { mustStartBefore: new Date('2999-01-01T00:00:00Z') } },
  ],
  // Whether it was added in time is known when it is added.
  ['{"name":"a","opts":{"mustStartBefore":1000}}', { opts: { mustStartBefore: 1000 } }],
])('%s', (text, job) => {
  expect(parseJobLine(text, 7)).toMatchObject({ line: 7, ...job })
})

test.each([
  ['not JSON secret', 'expected an object in JSON; got a text that is no JSON'],
  ['[1]', 'expected an object in JSON; got a list'],
  ['null', 'expected an object in JSON; got null'],
  ['{}', 'expected a name, a text; got nothing'],
  ['{"name":""}', 'expected a name, a text; got 0 characters'],
  ['{"name":"a","date":1}', "expected only name, data, opts; got 'date'"],
  ['{"name":"a","opts":[]}', 'expected opts to be an object; got a list'],
  ['{"name":"a","opts":{"dealy":1}}', "opts has no 'dealy' here"],
  ['{"name":"a","opts":{"toString":1}}', "opts has no 'toString' here"],
  ['{"name":"a","opts":{"delay":"5"}}', 'expected opts.delay to be a number of ms; got 1 character'],
  ['{"name":"a","opts":{"attempts":-1}}', 'expected opts.attempts to be a number; got -1'],
  ['{"name":"a","opts":{"cost":0}}', 'cost must be a number > 0'],
  ['{"name":"a","opts":{"keys":"large"}}', 'expected opts.keys to be an object such as {"model":"large"}; got 5'],
  ['{"name":"a","opts":{"keys":{"model":""}}}', 'keys.model must be'],
  ['{"name":"a","opts":{"group":"acme"}}', 'expected opts.group to be an object such as {"id":"tenant-42"}; got 4'],
  ['{"name":"a","opts":{"group":{"id":""}}}', 'the id of a group must be'],
  ['{"name":"a","opts":{"jobId":"active"}}', "job id 'active' is one of BullMQ's own key names"],
  ['{"name":"a","opts":{"mustStartBefore":"soon"}}', 'mustStartBefore must be a valid Date'],
])('%s is refused', (text, problem) => {
  const refused = () => parseJobLine(text, 3)
  expect(refused).toThrow(CommandError)
  expect(refused).toThrow(`line 3: ${problem}`)
  expect(refused).not.toThrow('secret')
})

describe('a stream of lines', () => {
  const jobsOf = async (...chunks: (string | Buffer)[]) => {
    const found: unknown[] = []
    for await (const { line, name } of jobsIn(Readable.from(chunks), 'it')) found.push([line, name])
    return found
  }

  test('lines that are empty count and are left out; the last may have no end', async () => {
    expect(await jobsOf('{"name":"a"}\r\n\n  \n{"na', 'me":"b"}\n{"name":"c"}')).toEqual([
      [1, 'a'],
      [4, 'b'],
      [5, 'c'],
    ])
    expect(await jobsOf()).toEqual([])
  })

  test('a character that two chunks share stays whole', async () => {
    const bytes = Buffer.from('{"name":"世"}')
    expect(await jobsOf(bytes.subarray(0, 10), bytes.subarray(10))).toEqual([[1, '世']])
  })
})
