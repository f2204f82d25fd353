import { describeVendors, FATAL, REFUSED, RETRY, type Row, SLOW } from './vendor-rows.ts'

const OTHERS: readonly Row[] = [
  [
    'Cloudflare API: drafts 08 and later',
    'cloudflare',
    { status: 429, headers: { ratelimit: '"default";r=0;t=30', 'ratelimit-policy': '"default";q=1200;w=300' } },
    [{ ...REFUSED, forMs: 30_000, source: 'ratelimit' }],
  ],
  [
    'Cloudflare API: Retry-After',
    'cloudflare',
    { status: 429, headers: { ratelimit: '"default";r=0;t=30', 'retry-after': '31' } },
    [{ ...REFUSED, forMs: 31_000 }],
  ],
  ['Cloudflare API: blocked for 5 minutes', 'cloudflare', { status: 429 }, [{ ...REFUSED, forMs: 300_000 }]],
  [
    'Cloudflare API: a good answer',
    'cloudflare',
    { status: 200, headers: { ratelimit: '"burst";r=50;t=30', 'ratelimit-policy': '"burst";q=100;w=60' } },
    [{ kind: 'ok', remaining: 50, resetMs: 30_000, policyRate: { limit: 100, period: 60_000 } }],
  ],
  [
    'Akamai: X-RateLimit-Next',
    'akamai',
    {
      status: 429,
      headers: {
        'x-ratelimit-remaining': '0',
        'x-ratelimit-next': '2026-11-21T12:00:02.5Z',
        'x-ratelimit-reset': '90',
      },
    },
    [{ ...REFUSED, forMs: 2500, source: 'x-ratelimit' }],
  ],
  [
    'MailerLite: X-RateLimit-Retry-After',
    'mailerlite',
    { status: 429, headers: { 'x-ratelimit-remaining': '0', 'x-ratelimit-retry-after': '59' } },
    [{ ...REFUSED, forMs: 59_000 }],
  ],
  [
    'Atlassian: ISO 8601 reset',
    'atlassian',
    { status: 429, headers: { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '2026-11-21T12:05Z' } },
    [{ ...REFUSED, forMs: 300_000 }],
  ],
  [
    'Atlassian: near the limit, without a count',
    'atlassian',
    { status: 200, headers: { 'x-ratelimit-nearlimit': 'true' } },
    [{ kind: 'ok' }, SLOW],
  ],
  [
    'Atlassian: near the limit, with a count',
    'atlassian',
    { status: 200, headers: { 'x-ratelimit-nearlimit': 'true', 'x-ratelimit-remaining': '9' } },
    [{ kind: 'ok', remaining: 9 }],
  ],
  [
    'Reddit: decimals and a delta',
    'http',
    {
      status: 200,
      headers: { 'x-ratelimit-used': '5', 'x-ratelimit-remaining': '595.0', 'x-ratelimit-reset': '127' },
    },
    [{ kind: 'ok', remaining: 595, resetMs: 127_000 }],
  ],
  [
    'Salesforce: Sforce-Limit-Info',
    'salesforce',
    { status: 200, headers: { 'sforce-limit-info': 'api-usage=18/5000' } },
    [{ kind: 'ok', remaining: 4982, source: 'x-ratelimit' }],
  ],
  [
    'Salesforce: REQUEST_LIMIT_EXCEEDED',
    'salesforce',
    { status: 403, body: [{ errorCode: 'REQUEST_LIMIT_EXCEEDED', message: 'TotalRequests Limit exceeded.' }] },
    [{ ...REFUSED, forMs: undefined, source: 'body' }],
  ],
  ['Salesforce: another 403', 'salesforce', { status: 403, body: [{ errorCode: 'API_DISABLED_FOR_ORG' }] }, []],
  [
    'gRPC: RESOURCE_EXHAUSTED with pushback',
    'grpc',
    { status: 200, headers: { 'grpc-status': '8', 'grpc-retry-pushback-ms': '1500' } },
    [{ ...REFUSED, forMs: 1500 }],
  ],
  [
    'gRPC: RESOURCE_EXHAUSTED',
    'grpc',
    { status: 200, headers: { 'grpc-status': '8' } },
    [{ ...REFUSED, forMs: undefined }],
  ],
  [
    'gRPC: a negative pushback',
    'grpc',
    { status: 200, headers: { 'grpc-status': '8', 'grpc-retry-pushback-ms': '-1' } },
    [FATAL],
  ],
  ['gRPC: a negative pushback, HTTP', 'grpc', { status: 503, headers: { 'grpc-retry-pushback-ms': '-1' } }, [FATAL]],
  [
    'gRPC: pushback, HTTP',
    'grpc',
    { status: 429, headers: { 'grpc-retry-pushback-ms': '20', 'retry-after': '9' } },
    [{ ...REFUSED, forMs: 20 }],
  ],
  [
    'gRPC: UNAVAILABLE',
    'grpc',
    { status: 200, headers: { 'grpc-status': '14', 'grpc-retry-pushback-ms': '20' } },
    [{ ...RETRY, afterMs: 20 }],
  ],
  ...(
    [
      ['No connection established. Last error: Error: connect ECONNREFUSED 192.0.2.1:50051. Resolution note: ', {}],
      ['Name resolution failed for target dns:nowhere.invalid:50051', {}],
      ['Connection dropped', { mayBeDone: true }],
      ['no healthy upstream', { mayBeDone: true }],
    ] as const
  ).map(
    ([text, more]): Row => [
      `gRPC: UNAVAILABLE: ${text}`,
      'grpc',
      { status: 503, headers: { 'grpc-status': '14' }, text: `14 UNAVAILABLE: ${text}` },
      [{ ...REFUSED, ...more, forMs: undefined, about: 'destination' }],
    ],
  ),
  ...['0', '2', '16'].map(
    (code): Row => [
      `gRPC: 429, whatever the trailer says: ${code}`,
      'grpc',
      { status: 429, headers: { 'grpc-status': code, 'retry-after': '9' } },
      [{ ...REFUSED, forMs: 9000 }],
    ],
  ),
  ['gRPC: INVALID_ARGUMENT', 'grpc', { status: 200, headers: { 'grpc-status': '3' } }, [FATAL]],
  ['gRPC: UNAUTHENTICATED', 'grpc', { status: 200, headers: { 'grpc-status': '16' } }, []],
  [
    'gRPC: OK',
    'grpc',
    { status: 200, headers: { 'grpc-status': '0', 'grpc-retry-pushback-ms': '-1' } },
    [{ kind: 'ok' }],
  ],
]

describeVendors('the other vendors', OTHERS)
