import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createColors } from 'picocolors'
import { expect, test } from 'vitest'
import type { Finding } from '../../src/doctor/check.ts'
import { reportText } from '../../src/doctor/report.ts'
import { sluiceProgram } from '../sluice-process.ts'
import { Ward } from './support.ts'

const ward = new Ward()

/** Runs `sluice doctor` as a process. */
async function doctor(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const { host, port, username, password } = ward.redis.connection('operator')
  const url = `redis://${username}:${encodeURIComponent(password)}@${host}:${port}`
  const child = spawn(process.execPath, [sluiceProgram(), 'doctor', ...args], {
    env: { ...process.env, REDIS_URL: url, PREFIX: ward.prefix, REDIS_READ_URL: '' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const texts = { out: '', err: '' }
  child.stdout.on('data', (chunk) => (texts.out += chunk))
  child.stderr.on('data', (chunk) => (texts.err += chunk))
  const [code] = await once(child, 'close')
  return { code, ...texts }
}

test('a server as it should be ends with 0, for people and as JSON', async () => {
  const human = await doctor('--limits-prefix', ward.redis.limits)
  expect(human).toMatchObject({ code: 0, err: '' })
  expect(human.out).toContain('Redis and this process')
  expect(human.out).toMatch(/0 errors, 0 warnings, 0 notes, \d+ ok, 1 skipped/)
  const json = await doctor('--json', '--strict', '--limits-prefix', ward.redis.limits)
  expect(json).toMatchObject({ code: 0, err: '' })
  expect(JSON.parse(json.out)).toMatchObject({ counts: { error: 0, warning: 0 } })
})

test('an error ends with 1', async () => {
  expect((await doctor('missing')).code).toBe(1)
})

// Fault table, row 20.
test('a Redis that may evict keys is an error, which ends with 1 and says what to set', async () => {
  await ward.configure({ 'maxmemory-policy': 'allkeys-lru' })
  const { code, out } = await doctor()
  expect([code, out]).toEqual([1, expect.stringMatching(/allkeys-lru[\s\S]*maxmemory-policy noeviction/)])
})

test('a warning ends with 0, and with 1 when it is strict', async () => {
  await ward.configure({ appendonly: 'no' })
  const ended = await Promise.all([doctor(), doctor('--strict')])
  expect(ended.map(({ code }) => code)).toEqual([0, 1])
})

test('wrong usage ends with 2', async () => {
  expect((await doctor('--role', 'king')).code).toBe(2)
})

test('what is told to people is grouped, with what is to be done below', () => {
  const findings: Finding[] = [
    { check: 'eviction', level: 'ok', message: 'fine', remedy: '' },
    { check: 'orphans', level: 'error', queue: 'b', message: 'lost', remedy: 'find them' },
    { check: 'clock', level: 'warning', message: 'late', remedy: 'run NTP' },
    { check: 'override', level: 'note', queue: 'c', message: 'for an hour', remedy: '' },
    ...['d', 'e'].map((queue) => ({ check: 'state', level: 'ok' as const, queue, message: 'as usual', remedy: '' })),
  ]
  const mark = (text: string) => text.toUpperCase()
  expect(reportText(findings, { colors: createColors(false), plain: mark, isFull: false })).toBe(
    [
      'Redis and this process',
      '  ✓ eviction        FINE',
      '  ! clock           LATE',
      '                    → RUN NTP',
      '',
      'queue B',
      '  ✗ orphans         LOST',
      '                    → FIND THEM',
      '',
      'queue C',
      '  · override        FOR AN HOUR',
      '',
      '✓ 2 queues without findings: D, E',
      '',
      '1 error, 1 warning, 1 note, 3 ok, 0 skipped',
    ].join('\n'),
  )
  const full = reportText(findings, { colors: createColors(false), plain: mark, isFull: true })
  expect(full).toContain('queue E\n  ✓ state           AS USUAL')
})
