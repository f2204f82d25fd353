import { describeVendors, FATAL, REFUSED, RETRY, type Row, SLOW } from './vendor-rows.ts'

const openai = (requests: readonly string[], tokens: readonly string[]) => ({
  'x-ratelimit-limit-requests': requests[0] as string,
  'x-ratelimit-remaining-requests': requests[1] as string,
  'x-ratelimit-reset-requests': requests[2] as string,
  'x-ratelimit-limit-tokens': tokens[0] as string,
  'x-ratelimit-remaining-tokens': tokens[1] as string,
  'x-ratelimit-reset-tokens': tokens[2] as string,
})
const anthropic = {
  'anthropic-ratelimit-requests-limit': '50',
  'anthropic-ratelimit-requests-remaining': '0',
  'anthropic-ratelimit-requests-reset': '2026-11-21T12:00:09Z',
  'anthropic-ratelimit-input-tokens-limit': '40000',
  'anthropic-ratelimit-input-tokens-remaining': '39000',
  'anthropic-ratelimit-input-tokens-reset': '2026-11-21T12:00:01Z',
}

const MODELS: readonly Row[] = [
  [
    'OpenAI: both gates shut, the later one counts',
    'openai',
    { status: 429, headers: openai(['60', '0', '1s'], ['150000', '0', '6m0s']) },
    [{ ...REFUSED, forMs: 360_000, reason: '429 X-RateLimit tokens reset 360 s' }],
  ],
  [
    'OpenAI: a gate that is open does not count',
    'openai',
    { status: 429, headers: openai(['10000', '9999', '8.64s'], ['150000', '0', '12ms']) },
    [{ ...REFUSED, forMs: 12 }],
  ],
  [
    'OpenAI: both open, but not far enough for this call',
    'openai',
    { status: 429, headers: openai(['60', '59', '1s'], ['150000', '10', '20s']) },
    [{ ...REFUSED, forMs: 20_000 }],
  ],
  [
    'OpenAI: retry-after-ms',
    'openai',
    { status: 429, headers: { ...openai(['60', '0', '1s'], ['1', '0', '9s']), 'retry-after-ms': '700' } },
    [{ ...REFUSED, forMs: 700 }],
  ],
  [
    'OpenAI: insufficient_quota is no rate',
    'openai',
    { status: 429, headers: { 'retry-after': '1' }, body: { error: { code: 'insufficient_quota' } } },
    [{ ...FATAL, reason: '429 insufficient_quota' }],
  ],
  ['OpenAI: billing', 'openai', { status: 429, body: { error: { code: 'billing_hard_limit_reached' } } }, [FATAL]],
  ['OpenAI: insufficient_quota of the SDK', 'openai', { status: 429, code: 'insufficient_quota' }, [FATAL]],
  ['OpenAI: 429 and nothing else', 'openai', { status: 429 }, [{ kind: 'pause', scope: 'queue', forMs: undefined }]],
  [
    'OpenAI: a good answer, gate by gate',
    'openai',
    {
      status: 200,
      headers: openai(['60', '59', '1s'], ['150000', '149984', '6ms']),
      body: { usage: { total_tokens: 16 } },
    },
    [
      { kind: 'ok', scope: { limit: 'requests' }, remaining: 59, resetMs: 1000, costUsed: 1 },
      { kind: 'ok', scope: { limit: 'tokens' }, remaining: 149_984, resetMs: 6, costUsed: 16 },
    ],
  ],
  ['OpenAI: a good answer without gates', 'openai', { status: 200 }, [{ kind: 'ok', scope: 'queue' }]],
  ['OpenAI: 503', 'openai', { status: 503 }, [SLOW, RETRY]],
  [
    'Azure OpenAI: whole seconds',
    'azure',
    { status: 429, headers: openai(['10', '0', '6'], ['1000', '0', '11']) },
    [{ ...REFUSED, forMs: 11_000 }],
  ],
  [
    'Azure OpenAI: -1 and 0 are not known',
    'azure',
    { status: 429, headers: openai(['-1', '-1', '0'], ['1000', '0', '11']) },
    [{ ...REFUSED, forMs: 11_000 }],
  ],
  [
    'Azure OpenAI: -1 and 0 for all',
    'azure',
    { status: 429, headers: openai(['-1', '-1', '0'], ['-1', '-1', '0']) },
    [{ kind: 'pause', forMs: undefined }],
  ],
  [
    'Azure: retry-after-ms',
    'azure',
    { status: 429, headers: { 'retry-after-ms': '1234' } },
    [{ ...REFUSED, forMs: 1234 }],
  ],
  [
    'Azure: x-ms-ratelimit-remaining-*, the least counts',
    'azure',
    {
      status: 200,
      headers: {
        'x-ms-ratelimit-remaining-subscription-reads': '11999',
        'x-ms-ratelimit-remaining-resource': 'Microsoft.Compute/Get3Min;159,Microsoft.Compute/Get30Min;1254',
      },
    },
    [{ kind: 'ok', scope: 'queue', remaining: 159, source: 'x-ratelimit' }],
  ],
  [
    'Anthropic: RFC 3339, the gate that is shut',
    'anthropic',
    { status: 429, headers: anthropic },
    [{ ...REFUSED, forMs: 9000, reason: '429 X-RateLimit requests reset 9 s' }],
  ],
  [
    'Anthropic: Retry-After first',
    'anthropic',
    { status: 429, headers: { ...anthropic, 'retry-after': '3' } },
    [{ ...REFUSED, forMs: 3000 }],
  ],
  [
    'Anthropic: a good answer, gate by gate',
    'anthropic',
    { status: 200, headers: anthropic, body: { usage: { input_tokens: 7, output_tokens: 5 } } },
    [
      { kind: 'ok', scope: { limit: 'requests' }, remaining: 0, resetMs: 9000, costUsed: 1 },
      { kind: 'ok', scope: { limit: 'input-tokens' }, remaining: 39_000, resetMs: 1000, costUsed: 7 },
    ],
  ],
  [
    'Anthropic: 529 is load, no quota',
    'anthropic',
    { status: 529, headers: { 'retry-after': '3' } },
    [SLOW, { ...RETRY, afterMs: 3000 }],
  ],
]

describeVendors('OpenAI, Azure and Anthropic', MODELS)
