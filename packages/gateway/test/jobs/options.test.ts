import { expect, test } from 'vitest'
import { createGateway } from '../../src/jobs/gateway.ts'
import { type GatewayOptions, InvalidGatewayOptionError } from '../../src/jobs/options.ts'

const connection = { host: '127.0.0.1', port: 1 }
const withRule = (rule: object) => ({ connection, queues: { mails: { schema: true, ...rule } } })

test.each<[object, string]>([
  [{ connection }, 'queues: '],
  [{ connection, queues: {} }, 'queues: expected at least one queue'],
  [{ queues: { a: { schema: true } } }, "connection: expected ioredis's options"],
  [{ connection, queues: { 'a:b': { schema: true } } }, 'queues.a:b: '],
  [{ connection, queues: { '..': { schema: true } } }, 'queues...: clients resolve . and .. in the path'],
  [{ connection, queues: { mails: {} } }, 'queues.mails.schema: expected a JSON Schema'],
  [withRule({ shape: { rate: 'fast' } }), 'queues.mails.shape: '],
  [withRule({ shape: { speed: 1 } }), 'queues.mails.shape: '],
  [withRule({ maxJobs: 201 }), 'queues.mails.maxJobs: '],
  [withRule({ maxJobs: 0 }), 'queues.mails.maxJobs: '],
  [withRule({ allow: ['jobId'] }), 'queues.mails.allow.0: '],
  [withRule({ maxWaitMs: 1000 }), 'queues.mails.maxWaitMs: waits for results'],
  [withRule({ jobOptions: { jobId: 'active' } }), 'queues.mails.jobOptions: '],
  [withRule({ retries: 3 }), 'queues.mails: '],
  [withRule({ group: 'caller' }), "queues.mails.group: expected 'token', { header: 'a name', required? } or"],
  [withRule({ group: { header: 'X Tenant' } }), 'queues.mails.group.header: expected the name of'],
  [withRule({ group: { data: 'to' } }), "queues.mails.group.data: expected a JSON Pointer such as '/tenant'"],
  [withRule({ group: { data: '/to', as: 'domain' } }), 'queues.mails.group: '],
  [withRule({ group: 'token', shape: { rate: '1/s' } }), 'queues.mails.group: needs groups in the shape'],
  [
    { ...withRule({ shape: { durability: { replicas: 1 } } }), connection: { ...connection, commandTimeout: 1000 } },
    'queues.mails.shape: durability.timeoutMs is 1000 ms, and the gateway may give up before Redis does: commandTimeout and socketTimeout of its connection must be above that',
  ],
  [
    {
      ...withRule({ shape: { durability: { replicas: 1 } } }),
      connection: { duplicate() {}, options: { socketTimeout: 500 } },
    },
    'must be above that; the shorter one is 500 ms',
  ],
  [withRule({ schema: { type: 'strin' } }), 'queues.mails.schema: '],
  [withRule({ schema: { typo: 'string' } }), 'queues.mails.schema: strict mode: unknown keyword: "typo"'],
  [withRule({ schema: { $ref: 'https://example.com/other' } }), "queues.mails.schema: can't resolve reference"],
  [
    withRule({ schema: { $schema: 'http://json-schema.org/draft-04/schema#' } }),
    'queues.mails.schema: $schema must be',
  ],
  [{ ...withRule({}), basePath: 'v1' }, 'basePath: '],
  [{ ...withRule({}), basePath: '/v1/' }, 'basePath: '],
  [{ ...withRule({}), headers: ['draft-99'] }, 'headers.0: '],
  [{ ...withRule({}), onError: 'log' }, 'onError: expected a function'],
])('%j is refused: %s', (options, message) => {
  expect(() => createGateway(options as GatewayOptions)).toThrow(InvalidGatewayOptionError)
  expect(() => createGateway(options as GatewayOptions)).toThrow(message)
})

test('all that is wrong is told at once', () => {
  const options = { ...withRule({ maxJobs: 0, results: 1 }), basePath: 5 } as unknown as GatewayOptions
  const error = (() => {
    try {
      return createGateway(options)
    } catch (thrown) {
      return thrown as Error
    }
  })()
  expect((error as Error).message.split('\n')).toHaveLength(3)
})
