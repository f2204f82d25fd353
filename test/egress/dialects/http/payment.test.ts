import { describeVendors, FATAL, REFUSED, RETRY, type Row, SLOW } from './vendor-rows.ts'

const throttleStatus = { maximumAvailable: 2000, currentlyAvailable: 40, restoreRate: 100 }
const graphql = (cost: object, errors?: object[]) => ({ errors, extensions: { cost } })
const calls = (used: string, more: Record<string, string> = {}) => ({
  'x-shopify-shop-api-call-limit': used,
  ...more,
})

const SHOPS: readonly Row[] = [
  [
    'Shopify REST: 16/40 leaks at 2/s',
    'shopify',
    { status: 200, headers: calls('16/40') },
    [{ kind: 'ok', remaining: 24, resetMs: 500, policyRate: { limit: 2, period: 1000 }, source: 'x-ratelimit' }],
  ],
  [
    'Shopify REST: 32/40 is the edge',
    'shopify',
    { status: 200, headers: calls('32/40') },
    [{ kind: 'ok', remaining: 8 }],
  ],
  [
    'Shopify REST: over 80 % it slows down',
    'shopify',
    { status: 201, headers: calls('33/40') },
    [
      { kind: 'ok', remaining: 7 },
      { ...SLOW, reason: '201 bucket 33/40' },
    ],
  ],
  [
    'Shopify REST: Plus leaks at 20/s',
    'shopify',
    { status: 200, headers: calls('1/400') },
    [{ kind: 'ok', remaining: 399, policyRate: { limit: 20, period: 1000 } }],
  ],
  [
    'Shopify REST: 429 with Retry-After',
    'shopify',
    { status: 429, headers: calls('40/40', { 'retry-after': '2.0' }) },
    [{ ...REFUSED, forMs: 2000, source: 'retry-after' }],
  ],
  [
    'Shopify REST: 429 without, when one has leaked',
    'shopify',
    { status: 429, headers: calls('42/40') },
    [{ ...REFUSED, forMs: 1500, source: 'x-ratelimit' }],
  ],
  [
    'Shopify REST: no bucket',
    'shopify',
    { status: 429, headers: calls('40/0') },
    [{ kind: 'pause', forMs: undefined }],
  ],
  ['Shopify REST: other failures', 'shopify', { status: 404, headers: calls('1/40') }, [FATAL]],
  [
    'Shopify GraphQL: THROTTLED until the points are back',
    'shopify',
    {
      status: 200,
      body: graphql({ requestedQueryCost: 240, throttleStatus }, [{ extensions: { code: 'THROTTLED' } }]),
    },
    [{ ...REFUSED, forMs: 2000, source: 'body' }],
  ],
  [
    'Shopify GraphQL: THROTTLED without figures',
    'shopify',
    { status: 200, body: { errors: [{ extensions: { code: 'THROTTLED' } }] } },
    [{ ...REFUSED, forMs: undefined, source: 'body' }],
  ],
  [
    'Shopify GraphQL: a good answer sets the rate',
    'shopify',
    { status: 200, body: graphql({ requestedQueryCost: 240, actualQueryCost: 12, throttleStatus }) },
    [
      {
        ...{ kind: 'ok', scope: 'queue', source: 'body', remaining: 40, resetMs: 10 },
        ...{ policyRate: { limit: 100, period: 1000 }, costUsed: 12 },
      },
    ],
  ],
  [
    'Stripe: a rate limiter',
    'stripe',
    {
      status: 429,
      headers: { 'stripe-rate-limited-reason': 'endpoint-rate' },
      body: { error: { code: 'rate_limit' } },
    },
    [{ ...SLOW, reason: '429 endpoint-rate' }, RETRY],
  ],
  [
    'Stripe: a reason as long as a peer likes is cut',
    'stripe',
    { status: 429, body: { error: { code: 'x'.repeat(500) } } },
    [{ ...SLOW, reason: `429 ${'x'.repeat(60)}` }, RETRY],
  ],
  ['Stripe: a limiter without a reason', 'stripe', { status: 429 }, [SLOW, RETRY]],
  [
    'Stripe: lock_timeout is the job’s alone',
    'stripe',
    { status: 429, body: { error: { code: 'lock_timeout' } } },
    [{ ...RETRY, reason: '429 lock_timeout' }],
  ],
  ['Stripe: lock_timeout of the SDK', 'stripe', { status: 429, code: 'lock_timeout' }, [RETRY]],
  [
    'Stripe: a time is obeyed',
    'stripe',
    { status: 429, headers: { 'retry-after': '4' } },
    [{ ...REFUSED, forMs: 4000 }],
  ],
  ['Stripe: 402, the card is declined', 'stripe', { status: 402 }, [FATAL]],
]

describeVendors('Shopify and Stripe', SHOPS)
