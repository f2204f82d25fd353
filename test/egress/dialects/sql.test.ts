import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { SqlAnswer } from '../../../src/egress/answer.ts'
import { sqlDialect } from '../../../src/egress/dialects/sql.ts'

function failed(fields: Partial<SqlAnswer>): SqlAnswer {
  return {
    protocol: 'sql',
    failed: true,
    text: 'Key (email)=(secret) exists',
    name: 'error',
    code: fields.sqlstate ?? '',
    ...fields,
  }
}

const noConnection = [
  { kind: 'pause', forMs: 2000, hard: false },
  { kind: 'slow', factor: 0.7 },
]
const refused = [{ kind: 'pause', forMs: 5000, hard: true }]
const down = [{ kind: 'pause', forMs: undefined, hard: true, about: 'destination' }]
const lost = [{ kind: 'pause', forMs: undefined, hard: true }]
const outOfResources = [{ kind: 'pause', forMs: undefined, hard: true }]
const retryJob = [{ kind: 'retryJob' }]
const fatal = [{ kind: 'fatal' }]

test.each([
  ['53300', 'too_many_connections', noConnection],
  ['53000', 'insufficient_resources', outOfResources],
  ['53100', 'disk_full', outOfResources],
  ['53200', 'out_of_memory', outOfResources],
  ['53400', 'configuration_limit_exceeded', outOfResources],
  ['57014', 'query_canceled', [{ kind: 'slow', factor: 0.7 }, ...retryJob]],
  ['57P01', 'admin_shutdown', down],
  ['57P02', 'crash_shutdown', down],
  ['57P03', 'cannot_connect_now', down],
  ['57P04', 'database_dropped', []],
  ['40001', 'serialization_failure', retryJob],
  ['40P01', 'deadlock_detected', retryJob],
  ['55P03', 'lock_not_available', retryJob],
  ['08000', 'connection_exception', lost],
  ['08001', 'sqlclient_unable_to_establish_sqlconnection', down],
  ['08003', 'connection_does_not_exist', lost],
  ['08004', 'sqlserver_rejected_establishment_of_sqlconnection', refused],
  ['08006', 'connection_failure', lost],
  ['08P01', 'protocol_violation', []],
  ['22001', 'string_data_right_truncation', fatal],
  ['22P02', 'invalid_text_representation', fatal],
  ['23502', 'not_null_violation', fatal],
  ['23505', 'unique_violation', fatal],
  ['42501', 'insufficient_privilege', []],
  ['42P01', 'undefined_table', []],
  ['28P01', 'invalid_password', []],
  ['3D000', 'invalid_catalog_name', []],
  ['XX000', 'internal_error', []],
])('SQLSTATE %s, %s', (sqlstate, _, asks) => {
  const given = sqlDialect(failed({ sqlstate }))
  expect(given).toEqual(asks.map((one) => expect.objectContaining({ ...one, scope: 'queue', source: 'sqlstate' })))
  for (const { reason } of given) {
    expect(reason).toContain(`(${sqlstate})`)
    expect(reason, 'the data of a job').not.toContain('secret')
  }
})

test.each([
  ['the pool of pg', { text: 'timeout exceeded when trying to connect' }],
  ['PgBouncer', { sqlstate: '08P01', text: 'no more connections allowed (max_client_conn)' }],
  ['PgBouncer, waiting', { sqlstate: '08P01', text: 'query_wait_timeout' }],
  ['MySQL', { sqlstate: '08004', code: 'ER_CON_COUNT_ERROR' }],
  ['MySQL, one user', { sqlstate: '42000', code: 'ER_TOO_MANY_USER_CONNECTIONS' }],
])('no connection is free: %s', (_, fields) => {
  expect(sqlDialect(failed(fields))).toMatchObject(noConnection)
})

test.each([
  ['MySQL, lock wait', failed({ sqlstate: 'HY000', code: 'ER_LOCK_WAIT_TIMEOUT' }), 'sqlstate'],
  ['MySQL, deadlock', failed({ sqlstate: '40001', code: 'ER_LOCK_DEADLOCK' }), 'sqlstate'],
  ['a query that was not answered', failed({ text: 'Query read timeout' }), 'sqlstate'],
  ['a system call that was not', { ...failed({ code: 'ETIMEDOUT' }), protocol: 'other' } as const, 'error'],
])('the job comes again: %s', (_, answer, source) => {
  expect(sqlDialect(answer)).toMatchObject([{ kind: 'retryJob', source }])
})

test.each([
  ['ECONNREFUSED', 'connect ECONNREFUSED 192.0.2.1:5432', down],
  ['ENOTFOUND', 'getaddrinfo ENOTFOUND db.example.org', down],
  ['ETIMEDOUT', 'connect ETIMEDOUT 192.0.2.1:5432', down],
  ['SELF_SIGNED_CERT_IN_CHAIN', 'self-signed certificate in certificate chain', down],
  ['ECONNRESET', 'read ECONNRESET', lost],
])('without an answer: %s', (code, text, asks) => {
  expect(sqlDialect({ protocol: 'other', failed: true, name: 'Error', code, text })).toMatchObject(asks)
})

test.each([
  ['timeout expired', down],
  ['Connection terminated due to connection timeout', down],
  ['The server does not support SSL connections', down],
  ['There was an error establishing an SSL connection', down],
  ['Client has encountered a connection error and is not queryable', lost],
  ['Connection terminated unexpectedly', lost],
])('by the text of pg: %s', (text, asks) => {
  expect(sqlDialect(failed({ text }))).toMatchObject(asks)
})

test('it says nothing of what went well, nor of other protocols', () => {
  expect(sqlDialect({ ...failed({ sqlstate: '53300' }), failed: false })).toEqual([])
  expect(sqlDialect({ ...failed({ code: 'E_OTHER' }), protocol: 'other' })).toEqual([])
  expect(sqlDialect({ ...failed({ text: '53300' }), protocol: 'smtp' })).toEqual([])
})

test('no answer breaks it', () => {
  const answers = fc.record({ sqlstate: fc.string({ maxLength: 6 }), code: fc.string(), text: fc.string() })
  fc.assert(
    fc.property(answers, (some) => {
      for (const { reason } of sqlDialect(failed(some))) expect(reason).not.toMatch(/[\r\n]/)
    }),
  )
})
