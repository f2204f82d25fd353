import { describe, expect, test } from 'vitest'
import { InvalidPayloadError } from '../../programs/src/errors.ts'
import { bindStatement, parseStatements } from '../src/db-writes/statements.ts'

const everyType = {
  statements: {
    store: {
      sql: 'insert into t values ($1, $2, $3, $4, $5, $6, $7, $8)',
      parameters: [
        { name: 'text', type: 'string' },
        { name: 'count', type: 'integer' },
        { name: 'large', type: 'bigint' },
        { name: 'ratio', type: 'number' },
        { name: 'flag', type: 'boolean' },
        { name: 'at', type: 'timestamp' },
        { name: 'key', type: 'uuid' },
        { name: 'doc', type: 'json', nullable: true },
      ],
    },
  },
}
const catalog = parseStatements(JSON.stringify(everyType))
const parameters = {
  doc: [1, { a: "'; drop table t; --" }],
  key: '0c2f3b7e-6d0b-4a53-9a5f-0c6c6f8a0d11',
  at: '2026-03-01T10:00:00Z',
  flag: false,
  ratio: 0.5,
  large: '9007199254740993',
  count: 3,
  text: "O'Brien",
}

test('parameters are put in the order of the statement, whatever theirs', () => {
  expect(bindStatement(catalog, { statement: 'store', parameters })).toEqual({
    name: 'store',
    sql: 'insert into t values ($1, $2, $3, $4, $5, $6, $7, $8)',
    values: [
      "O'Brien",
      3,
      '9007199254740993',
      0.5,
      false,
      '2026-03-01T10:00:00Z',
      '0c2f3b7e-6d0b-4a53-9a5f-0c6c6f8a0d11',
      `[1,{"a":"'; drop table t; --"}]`,
    ],
  })
})

test('null is taken only where it is allowed', () => {
  expect(bindStatement(catalog, { statement: 'store', parameters: { ...parameters, doc: null } }).values[7]).toBeNull()
  expect(() => bindStatement(catalog, { statement: 'store', parameters: { ...parameters, text: null } })).toThrow(
    'text: expected string, got null',
  )
})

describe.each([
  ['text', 5, 'a number for a string'],
  ['text', 'evil\0', 'NUL in a string'],
  ['text', ['evil'], 'an array for a string'],
  ['count', 1.5, 'a fraction for an integer'],
  ['count', '3', 'digits for an integer'],
  ['count', 2 ** 53, 'an integer that has lost digits'],
  ['large', 12, 'a number for a bigint'],
  ['large', '12; drop table t', 'SQL for a bigint'],
  ['ratio', '0.5', 'text for a number'],
  ['flag', 'true', 'text for a boolean'],
  ['flag', 0, 'a number for a boolean'],
  ['at', 'yesterday', 'words for a timestamp'],
  ['at', '2026-13-01T10:00:00Z', 'a month that does not exist'],
  ['at', 1_700_000_000_000, 'a number for a timestamp'],
  ['key', 'evil', 'text for a uuid'],
  ['doc', undefined, 'nothing for json'],
] as const)('%s = %j', (name, value, why) => {
  test(`is refused: ${why}`, () => {
    const attempt = () => bindStatement(catalog, { statement: 'store', parameters: { ...parameters, [name]: value } })
    expect(attempt).toThrow(InvalidPayloadError)
    expect(attempt).toThrow(`${name}: expected `)
    expect(attempt).not.toThrow(/evil|drop/)
  })
})

test.each([
  ['an unknown statement', { statement: 'drop', parameters }],
  ['a name that every object has', { statement: 'constructor', parameters }],
  ['__proto__', JSON.parse('{"statement":"__proto__","parameters":{}}')],
  ['an unknown parameter', { statement: 'store', parameters: { ...parameters, evil: 1 } }],
  ['no parameters', { statement: 'store' }],
  ['parameters in a list', { statement: 'store', parameters: Object.values(parameters) }],
  ['SQL beside the name', { statement: 'store', parameters, sql: 'drop table t' }],
  ['nothing', undefined],
])('%s is refused', (_, data) => {
  const attempt = () => bindStatement(catalog, data)
  expect(attempt).toThrow(InvalidPayloadError)
  expect(attempt).not.toThrow(/evil|drop/)
})

test('every missing parameter is named in one message', () => {
  expect(() => bindStatement(catalog, { statement: 'store', parameters: {} })).toThrow(
    /text: .*nothing; count: .*nothing; .*doc: expected json or null, got nothing/,
  )
})

test('a parameter that the prototype supplies is missing', () => {
  const inherited = parseStatements(
    '{"statements":{"s":{"sql":"select $1","parameters":[{"name":"toString","type":"json"}]}}}',
  )
  expect(() => bindStatement(inherited, { statement: 's', parameters: {} })).toThrow(
    'toString: expected json, got nothing',
  )
})

const parameter = { name: 'a', type: 'string' }

test.each([
  ['text that is not JSON', 'not json', /JSON/],
  ['no statements', { statements: {} }, /at least one statement/],
  ['an unknown field', { statements: {}, more: 1 }, /more/],
  ['a statement that is no write', statementOf('drop table t', []), /statements\.s\.sql: expected one insert/],
  ['the end of the transaction', statementOf('commit', []), /expected one insert/],
  ['a type that does not exist', statementOf('select $1', [{ name: 'a', type: 'text' }]), /type/],
  ['too few places', statementOf('select 1', [parameter]), /expected \$1 to \$1 .* got none/],
  ['a gap in the places', statementOf('select $1, $3', [parameter, { ...parameter, name: 'b' }]), /got \$1 \$3/],
  ['a name twice', statementOf('select $1, $2', [parameter, parameter]), /parameter names repeat/],
])('a file with %s is refused', (_, content, message) => {
  expect(() => parseStatements(typeof content === 'string' ? content : JSON.stringify(content))).toThrow(message)
})

function statementOf(sql: string, list: unknown[]) {
  return { statements: { s: { sql, parameters: list } } }
}
