import { describe, expect, test } from 'vitest'
import { SettingsError } from '../../programs/src/errors.ts'
import { describeSettings, readSettings, type SettingTable } from '../../programs/src/settings.ts'
import { databaseWritesProgram } from '../src/db-writes/program.ts'
import { emailProgram } from '../src/email/program.ts'

const emailEnv = { REDIS_URL: 'redis://127.0.0.1:6379', SMTP_URL: 'smtp://127.0.0.1:1025', RATE: '50/s' }

function problemsOf(table: SettingTable, env: NodeJS.ProcessEnv): string {
  try {
    readSettings(table, env)
  } catch (error) {
    if (error instanceof SettingsError) return error.message
    throw error
  }
  throw new Error('expected the settings to be refused')
}

test('what is not given takes its default', () => {
  expect(readSettings(emailProgram.settings, emailEnv)).toEqual({
    redisUrl: 'redis://127.0.0.1:6379',
    queueName: 'emails',
    prefix: 'bull',
    rate: '50/s',
    burst: 1,
    capacity: 10_000,
    concurrency: 10,
    groups: undefined,
    feedbackScope: 'queue',
    giveUpAfterMs: 259_200_000,
    healthPort: 0,
    healthHost: '127.0.0.1',
    stallTimeoutMs: 60_000,
    shutdownTimeoutMs: 50_000,
    logLevel: 'info',
    departureLog: '',
    adapt: false,
    profile: 'smtp',
    smtpUrl: 'smtp://127.0.0.1:1025',
    smtpTimeoutMs: 30_000,
    allowMultipleRecipients: false,
  })
})

test.each([
  ['group', 'group'],
  ['by:host', { by: 'host' }],
  ['by:group,host', { by: ['group', 'host'] }],
  ['pool:keys', { pool: 'keys' }],
])('the scope of feedback: %s', (text, feedbackScope) => {
  expect(readSettings(emailProgram.settings, { ...emailEnv, FEEDBACK_SCOPE: text })).toMatchObject({ feedbackScope })
})

test.each(['host', 'by:', 'by:a,,b', 'pool:a,b'])('no scope of feedback: %s', (text) => {
  expect(problemsOf(emailProgram.settings, { ...emailEnv, FEEDBACK_SCOPE: text })).toContain('FEEDBACK_SCOPE: ')
})

test('an empty variable counts as unset', () => {
  expect(readSettings(emailProgram.settings, { ...emailEnv, CONCURRENCY: '' })).toMatchObject({ concurrency: 10 })
  expect(problemsOf(emailProgram.settings, { ...emailEnv, SMTP_URL: '' })).toContain('SMTP_URL: expected an smtp://')
})

test('one message lists everything that is wrong, each with what was expected and what came', () => {
  const message = problemsOf(emailProgram.settings, {
    REDIS_URL: 'http://:hunter2hunter2@redis',
    QUEUE: 'a:b',
    RATE: 'fast',
    CAPACITY: '-1',
    CONCURRENCY: '1.5',
    HEALTH_PORT: '70000',
    LOG_LEVEL: 'loud',
    ALLOW_MULTIPLE_RECIPIENTS: 'maybe',
  })
  const lines = message.split('\n')
  expect(lines[0]).toBe('9 settings are wrong:')
  expect(lines.slice(1).map((line) => line.trim().split(':')[0])).toEqual([
    'REDIS_URL',
    'QUEUE',
    'RATE',
    'CAPACITY',
    'CONCURRENCY',
    'HEALTH_PORT',
    'LOG_LEVEL',
    'SMTP_URL',
    'ALLOW_MULTIPLE_RECIPIENTS',
  ])
  expect(message).toContain('CAPACITY: expected a whole number from 1: how many jobs may wait, got "-1"')
  expect(message).toContain('SMTP_URL: expected an smtp:// or smtps:// URL, got nothing')
  expect(message).toContain("'fast'")
  expect(message).not.toContain('hunter2')
})

test('what applies to groups is JSON, and is checked as the shape would be', () => {
  const groups = (text: string) => readSettings(emailProgram.settings, { ...emailEnv, GROUP_DEFAULTS: text }).groups
  expect(groups('{"rate":"5/s","concurrency":2}')).toEqual({ rate: '5/s', concurrency: 2 })
  const wrong = (groups: string) => problemsOf(emailProgram.settings, { ...emailEnv, GROUP_DEFAULTS: groups })
  expect(wrong('rate=5/s')).toContain('GROUP_DEFAULTS: expected JSON such as {"rate":"5/s"}, got "rate=5/s"')
  expect(wrong('{"speed":5}')).toContain("GROUP_DEFAULTS: shape.groups has no field 'speed'; it has rate, burst")
  expect(wrong('[]')).toContain('GROUP_DEFAULTS: shape.groups must be an object; got []')
})

describe('the statement file', () => {
  const env = { REDIS_URL: 'redis://r', RATE: '1/s', DATABASE_URL: 'postgres://p' }

  test('the example is accepted', () => {
    const settings = readSettings(databaseWritesProgram.settings, {
      ...env,
      STATEMENTS: 'examples/db-writes.config.json',
    })
    expect([...(settings.statements as Map<string, unknown>).keys()]).toEqual([
      'record-order',
      'record-event',
      'record-audit',
    ])
  })

  test('one that is missing is told apart from one that is wrong', () => {
    expect(problemsOf(databaseWritesProgram.settings, { ...env, STATEMENTS: 'nowhere.json' })).toMatch(
      /STATEMENTS: nowhere\.json: ENOENT/,
    )
    expect(problemsOf(databaseWritesProgram.settings, { ...env, STATEMENTS: 'package.json' })).toMatch(
      /STATEMENTS: package\.json: statements: /,
    )
  })
})

test.each([emailProgram, databaseWritesProgram])('the help of $name names every variable', ({ settings }) => {
  const help = describeSettings(settings)
  for (const { variable } of Object.values(settings)) expect(help).toContain(`  ${variable} `)
  expect(help).toContain('RATE')
})
