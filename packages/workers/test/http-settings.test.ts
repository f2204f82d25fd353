import { describe, expect, test } from 'vitest'
import { egressFetch } from '../../fetch/src/index.ts'
import { SettingsError } from '../../programs/src/errors.ts'
import { describeSettings, readSettings } from '../../programs/src/settings.ts'
import { httpProgram, parseTargets, type Targets } from '../src/http/program.ts'

const env = { REDIS_URL: 'redis://127.0.0.1:6379', RATE: '50/s' }

const read = (given: NodeJS.ProcessEnv) => readSettings(httpProgram.settings, { ...env, ...given })

function problemsOf(given: NodeJS.ProcessEnv): string {
  try {
    read(given)
  } catch (error) {
    if (error instanceof SettingsError) return error.message
    throw error
  }
  throw new Error('expected the settings to be refused')
}

test('what is not given takes its default', () => {
  expect(read({})).toMatchObject({
    ...{ queueName: 'http', profile: 'http', targets: {}, allowUrls: false, urlPorts: [443] },
    ...{ timeoutMs: 30_000, maxResponseBytes: 1_048_576, maxBodyChars: 16_384 },
  })
})

test('the help names every variable', () => {
  const help = describeSettings(httpProgram.settings)
  for (const { variable } of Object.values(httpProgram.settings)) expect(help).toContain(`  ${variable} `)
})

test('ports are read', () => {
  expect(read({ URL_PORTS: '443, 8443' })).toMatchObject({ urlPorts: [443, 8443] })
  for (const wrong of ['0', '65536', '443,', 'https', '443;8443']) {
    expect(problemsOf({ URL_PORTS: wrong })).toContain('URL_PORTS: expected ports from 1 to 65535')
  }
})

describe('the target file', () => {
  test('of the examples is accepted', async () => {
    const { targets } = read({ TARGETS: 'examples/http.config.json' }) as { targets: Targets }
    expect(Object.keys(targets)).toEqual(['payments', 'repository', 'warehouse'])
    await egressFetch({ targets, env: { STRIPE_KEY: 'a', GITHUB_TOKEN: 'b' } }).close()
  })

  test('that is missing is told apart from one that is wrong', () => {
    expect(problemsOf({ TARGETS: 'nowhere.json' })).toMatch(/TARGETS: nowhere\.json: ENOENT/)
    expect(problemsOf({ TARGETS: 'package.json' })).toMatch(/TARGETS: package\.json: targets: /)
  })

  test.each([
    ['no targets', { targets: {} }, 'targets: expected at least one target'],
    ['another field', { targets: { a: { baseUrl: 'https://a' } }, extra: 1 }, 'the file: Unrecognized key: "extra"'],
    ['a target without a base URL', { targets: { a: {} } }, 'targets.a.baseUrl: Invalid input'],
    ['a name with a space', { targets: { 'a b': { baseUrl: 'https://a' } } }, 'targets.a b: Invalid key'],
    [
      'an unknown field',
      { targets: { a: { baseUrl: 'https://a', header: {} } } },
      'targets.a: Unrecognized key: "header"',
    ],
    [
      'a header that is neither text nor variable',
      { targets: { a: { baseUrl: 'https://a', headers: { b: { value: 'c' } } } } },
      'targets.a.headers.b: expected a text or {"env": "VARIABLE", "prefix": "…"}',
    ],
    ['an unknown method', { targets: { a: { baseUrl: 'https://a', methods: ['TRACE'] } } }, 'targets.a.methods.0: '],
  ])('with %s is refused', (_, file, problem) => {
    expect(() => parseTargets(JSON.stringify(file))).toThrow(problem)
  })
})
