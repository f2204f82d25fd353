import type { Policy } from '../../src/responses/policy.ts'

/** An example of fields: where it stands, what the draft writes, and the same in our own figures. */
export interface FieldsExample {
  readonly section: string
  readonly policy?: string
  readonly limit?: string
  readonly policies: readonly Policy[]
}

const bytes = (base64: string) => Uint8Array.from(Buffer.from(base64, 'base64'))
const one = (name: string, figures: Omit<Policy, 'name'>): Policy[] => [{ name, ...figures }]

/** Every example of fields in draft-ietf-httpapi-ratelimit-headers-10 that keeps the draft's own rules. */
export const VALID: readonly FieldsExample[] = [
  {
    section: '3 RateLimit-Policy Field',
    policy: '"burst";q=100;w=60,"daily";q=1000;w=86400',
    policies: [
      { name: 'burst', quota: 100, windowMs: 60_000 },
      { name: 'daily', quota: 1000, windowMs: 86_400_000 },
    ],
  },
  {
    section: '3.2 time window',
    policy: '"default";q=100;w=10',
    policies: one('default', { quota: 100, windowMs: 10_000 }),
  },
  {
    section: '3.2 multiple policies',
    policy: '"permin";q=50;w=60,"perhr";q=1000;w=3600',
    policies: [
      { name: 'permin', quota: 50, windowMs: 60_000 },
      { name: 'perhr', quota: 1000, windowMs: 3_600_000 },
    ],
  },
  {
    section: '3.2 partition key',
    policy: '"peruser";q=100;w=60;pk=:cHsdsRa894==:',
    policies: one('peruser', { quota: 100, windowMs: 60_000, partitionKey: bytes('cHsdsRa894==') }),
  },
  {
    section: '3.2 quota unit',
    policy: '"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:',
    policies: one('peruser', {
      quota: 65_535,
      unit: 'content-bytes',
      windowMs: 10_000,
      partitionKey: bytes('sdfjLJUOUH=='),
    }),
  },
  {
    section: '4 RateLimit Field, and 4.2 reset in 30 s',
    limit: '"default";r=50;t=30',
    policies: one('default', { remaining: 50, resetMs: 30_000 }),
  },
  {
    section: '4.2 no reset',
    limit: '"default";r=999;pk=:dHJpYWwxMjEzMjM=:',
    policies: one('default', { remaining: 999, partitionKey: bytes('dHJpYWwxMjEzMjM=') }),
  },
  {
    section: '4.2 300 MB',
    limit: '"default";r=300000000;t=60;pk=:QXBwLTk5OQ==:',
    policies: one('default', { remaining: 300_000_000, resetMs: 60_000, partitionKey: bytes('QXBwLTk5OQ==') }),
  },
  {
    section: '6 redirection',
    limit: '"problemPolicy";r=0;t=10',
    policies: one('problemPolicy', { remaining: 0, resetMs: 10_000 }),
  },
  {
    section: '7 no guarantee',
    limit: '"default";r=1;t=7',
    policies: one('default', { remaining: 1, resetMs: 7000 }),
  },
  {
    section: '8 a reset that all clients share',
    limit: '"daily";r=1;t=36400',
    policies: one('daily', { remaining: 1, resetMs: 36_400_000 }),
  },
  {
    section: '8 resource exhaustion',
    policy: '"somepolicy";q=10000;w=1000',
    limit: '"somepolicy";r=10000;t=10',
    policies: one('somepolicy', { quota: 10_000, windowMs: 1_000_000, remaining: 10_000, resetMs: 10_000 }),
  },
  {
    section: 'B.1.1 exhausted',
    limit: '"default";r=0;t=50',
    policies: one('default', { remaining: 0, resetMs: 50_000 }),
  },
  {
    section: 'B.1.1 served nevertheless',
    limit: '"default";r=0;t=48',
    policies: one('default', { remaining: 0, resetMs: 48_000 }),
  },
  {
    section: 'B.1.2 multiple policies',
    limit: '"dayLimit";r=100;t=36000',
    policies: one('dayLimit', { remaining: 100, resetMs: 36_000_000 }),
  },
  {
    section: 'B.1.3 limiting concurrency',
    policy: '"basic";q=100;w=60',
    limit: '"basic";r=60;t=58',
    policies: one('basic', { quota: 100, windowMs: 60_000, remaining: 60, resetMs: 58_000 }),
  },
  {
    section: 'B.1.3 in exhaustion',
    policy: '"basic";q=100;w=60',
    limit: '"basic";r=20;t=56',
    policies: one('basic', { quota: 100, windowMs: 60_000, remaining: 20, resetMs: 56_000 }),
  },
  {
    section: 'B.1.4 throttled',
    limit: '"default";r=0;t=5',
    policies: one('default', { remaining: 0, resetMs: 5000 }),
  },
  {
    section: 'B.2.1 window by parameter',
    policy: '"fixedwindow";q=100;w=60',
    limit: '"fixedwindow";r=99;t=50',
    policies: one('fixedwindow', { quota: 100, windowMs: 60_000, remaining: 99, resetMs: 50_000 }),
  },
  {
    section: 'B.2.2 dynamic',
    policy: '"dynamic";q=100;w=60',
    limit: '"dynamic";r=9;t=50',
    policies: one('dynamic', { quota: 100, windowMs: 60_000, remaining: 9, resetMs: 50_000 }),
  },
  {
    section: 'B.2.3 pushing back',
    policy: '"dynamic";q=15;w=20',
    limit: '"dynamic";r=0;t=20',
    policies: one('dynamic', { quota: 15, windowMs: 20_000, remaining: 0, resetMs: 20_000 }),
  },
  {
    section: 'B.3 pushing back with Retry-After',
    policy: '"dynamic";q=100;w=60',
    limit: '"dynamic";r=15;t=40',
    policies: one('dynamic', { quota: 100, windowMs: 60_000, remaining: 15, resetMs: 40_000 }),
  },
  {
    section: 'B.3.2 multiple windows',
    policy: '"hour";q=1000;w=3600, "day";q=5000;w=86400',
    limit: '"day";r=100;t=36000',
    policies: [
      { name: 'hour', quota: 1000, windowMs: 3_600_000 },
      { name: 'day', quota: 5000, windowMs: 86_400_000, remaining: 100, resetMs: 36_000_000 },
    ],
  },
  {
    section: 'FAQ 8 the simplest form',
    limit: '"default";r=50;t=60',
    policies: one('default', { remaining: 50, resetMs: 60_000 }),
  },
  {
    section: 'FAQ 8 two lines of one field',
    policy: '"sliding";q=100;w=60;burst=1000, "fixed";q=5000;w=3600;burst=0',
    limit: '"sliding";r=50;t=44',
    policies: [
      { name: 'sliding', quota: 100, windowMs: 60_000, remaining: 50, resetMs: 44_000 },
      { name: 'fixed', quota: 5000, windowMs: 3_600_000 },
    ],
  },
  {
    section: 'Fields on the web: half of the throughput',
    policy: '"sliding";q=12;w=1',
    limit: '"sliding";q=12;r=6;t=1',
    policies: one('sliding', { quota: 12, windowMs: 1000, remaining: 6, resetMs: 1000 }),
  },
  {
    section: 'Fields on the web: all of the throughput',
    policy: '"sliding";q=12;w=1',
    limit: '"sliding";q=12;r=1;t=1',
    policies: one('sliding', { quota: 12, windowMs: 1000, remaining: 1, resetMs: 1000 }),
  },
]

/** The examples of B.3.1, which break the draft's rules: names that are no Strings, and limits without `r`. */
export const INVALID: readonly FieldsExample[] = [
  {
    section: 'B.3.1 first request',
    policy: 'quota;q=100;w=1',
    limit: 'quota;t=1',
    policies: one('quota', { quota: 100, windowMs: 1000, resetMs: 1000 }),
  },
  {
    section: 'B.3.1 second request',
    policy: 'quota;q=10',
    limit: 'quota;t=1',
    policies: one('quota', { quota: 10, resetMs: 1000 }),
  },
]
