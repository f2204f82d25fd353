import { expect, test } from 'vitest'
import { adminOf, startOwnRedis } from '../../../../test/faults/support/own-redis.ts'
import { useProcesses } from '../../../../test/support/processes.ts'
import { ANY, post, startGateway, tokenFile } from './support.ts'

const CANARY = 'S3CRET_CANARY'
const PASSWORD = `${CANARY}_PASSWORD`

const processes = useProcesses()

test('no token, key, field, path or payload is in a line of the log or in a refusal, whatever fails', async () => {
  const service = await startOwnRedis()
  const admin = adminOf(service.url)
  await admin.config('SET', 'requirepass', PASSWORD)
  await admin.auth(PASSWORD)
  const address = new URL(service.url)
  address.password = PASSWORD
  const { file, tokens } = tokenFile({ shop: { queues: ['jobs'] }, slow: { tier: 'slow' } })
  const schema = { type: 'object', properties: { to: { type: 'string', maxLength: 60 } }, additionalProperties: false }
  const config = {
    queues: { jobs: { schema, idempotency: 'required' }, other: ANY },
    limits: [{ name: 'calls', rate: '1000/s', burst: 1000, tiers: { slow: { rate: '1/h' } } }],
  }
  const { program, url } = await startGateway(processes, config, {
    ...{ REDIS_URL: address.href, TOKEN_FILE: file, LOG_LEVEL: 'trace', REQUEST_TIMEOUT_MS: '1000' },
  })
  const answers: Response[] = []
  let calls = 0
  const call = async (queue: string, data: unknown, more: Record<string, string> = {}) => {
    answers.push(
      await post(url, queue, data, {
        ...{ authorization: `Bearer ${tokens.shop}`, cookie: `session=${CANARY}`, 'x-request-id': CANARY },
        ...{ 'idempotency-key': `${CANARY}-key-${calls++}`, prefer: `wait=${CANARY}`, ...more },
      }),
    )
  }
  const callAll = async () => {
    await call('jobs', { to: CANARY })
    await call('jobs', { to: `${CANARY}${'x'.repeat(100)}` })
    await call('jobs', { [CANARY]: 1 })
    await call('jobs', { to: `${CANARY} again` }, { 'idempotency-key': `${CANARY}-key-0` })
    await call('other', { to: CANARY })
    await call('jobs', { to: CANARY }, { authorization: `Bearer ${tokens.slow}` })
    await call('jobs', { to: CANARY }, { authorization: `Bearer ${tokens.slow}` })
    await call(`${CANARY}`, {})
    await call('jobs', {}, { authorization: `Bearer ${CANARY}${'x'.repeat(40)}` })
    await call('jobs', {}, { 'content-type': CANARY })
    await call('jobs', {}, { 'idempotency-key': `${CANARY}\\"` })
    answers.push(await fetch(`${url}/${CANARY}?token=${CANARY}`))
    answers.push(await fetch(`${url}/%${CANARY}`))
    answers.push(await fetch(`${url}/queues/jobs/jobs/${CANARY}`, { method: 'DELETE' }))
    await Promise.all(Array.from({ length: 60 }, (_, i) => call('jobs', { to: `${CANARY}${i}` })))
  }
  await callAll()
  await admin.config('SET', 'maxmemory', '1')
  await callAll()
  await admin.config('SET', 'maxmemory', '0')
  // What a wrong type says has the command with its arguments: the data of jobs.
  await admin.del('bull:jobs:wait')
  await admin.set('bull:jobs:wait', 'no list')
  await callAll()
  const statuses = new Set(answers.map(({ status }) => status))
  for (const status of [202, 401, 403, 404, 415, 422, 429, 500, 503]) expect(statuses, `${status}`).toContain(status)
  for (const answer of answers.filter(({ status }) => status >= 400)) {
    const told = (await answer.text()).replace(/"instance":"[^"]*",?/, '')
    expect(told).not.toContain('CANARY_PASSWORD')
    expect(told).not.toContain(tokens.shop)
    expect(told).not.toMatch(/\\.ts|node_modules|stack/)
  }
  await program.kill('SIGTERM')
  expect(program.output).toContain('"msg":"answered"')
  expect(program.output).not.toContain('CANARY')
  expect(program.output).not.toContain(tokens.shop)
})
