/** Code that is mutated, and the tests that know it. */
export interface Room {
  readonly name: string
  /** Its folders and files. */
  readonly of: readonly string[]
  /** The tests that notice most, soon. They run with few decisions and stories. */
  readonly quick: readonly string[]
  /** What else of `npm test` may notice, and the same tests with as many as there. */
  readonly wide: readonly string[]
}

/** What the quick tests draw less of. */
export const FEW: Readonly<Record<string, string>> = {
  AGEING_STORIES: '5',
  AGREE_RUNS: '3',
  EXACT_RUNS: '4',
  KEYS_DECISIONS: '3000',
  KEYS_STORIES: '20',
  LINES_STORIES: '60',
  MODEL_COMBINATIONS: '6',
  MODEL_DECISIONS: '1500',
  MODEL_ENDED_TOGETHER: '5',
  MODEL_HINTS: '8',
  MODEL_OBEDIENT: '1',
  PLACES_STORIES: '4',
  RAMP_STORIES: '4',
  ROOM_STORIES: '30',
  SCHEDULES_STORIES: '20',
  SHARE_STORIES: '1',
  SLEEPERS_RUNS: '1',
  STRICT_STORIES: '15',
  WARM_UP_STORIES: '1',
}

/** Scripts are part of all that follows. */
const EVERYWHERE = [
  'test/model/',
  'test/ageing/',
  'test/schedules/',
  'test/faults/dropped-replies',
  'test/faults/unanswered-calls',
]

export const ROOMS: readonly Room[] = [
  {
    name: 'meter',
    of: ['lua/meter', 'lua/gate', 'lua/redis'],
    quick: [
      ...within(
        'model',
        'found pacing unshaped moved-slot kept-for-people reference crossings depart-order wake-ups sleepers',
      ),
      ...within('ageing', 'order places'),
      ...within('schedules', 'crossings closed even zones'),
      ...within('groups', 'lines stock-wakes overrides tokens'),
      ...within('keys', 'properties shared'),
      ...within('ramp', 'idle'),
      ...within('shape', 'meter-state'),
      ...within('feedback', 'probe'),
      'test/worker/who-wakes',
    ],
    wide: [
      ...EVERYWHERE,
      'test/groups/',
      'test/keys/',
      'test/ramp/',
      'test/worker/',
      'test/queue-limits/',
      'test/feedback/',
      'test/inspect/status',
    ],
  },
  {
    name: 'groups',
    of: ['lua/groups', 'lua/verbs/set-group.lua'],
    quick: [
      ...within(
        'groups',
        'model/decisions lines places order share overrides limits-per-group bulks feedback line room crossings returned',
      ),
      ...within('keys', 'model/lua model/cases properties lanes own-values feedback'),
      'test/pools/feedback',
      ...within('strict', 'histories order'),
      ...within('schedules', 'groups'),
    ],
    wide: ['test/groups/', 'test/keys/', ...EVERYWHERE, 'test/strict/', 'test/worker/', 'test/inspect/'],
  },
  {
    name: 'limits',
    of: [
      'lua/limits',
      ...verbs(
        'decide reserve settle-limit settle-cost cancel-reservation charge-limit define-limit set-limit set-limit-mode',
        'block-key reset-key extend-lease release-lease',
      ),
    ],
    quick: [
      ...within(
        'limits',
        'model/decisions model/log-and-days model/pool model/properties modes refusals versions keys',
      ),
      ...within('limits', 'leases mitigation waiting sources'),
      ...within('queue-limits', 'concurrency returned shared settle-charged horizons'),
      ...within('keys', 'own-values warm-up max-keys one-at-a-time shared model/lua properties'),
      ...within('schedules', 'limits even'),
      ...within('pools', 'pools'),
      ...within('model', 'crossings'),
    ],
    wide: ['test/limits/', 'test/queue-limits/', 'test/keys/', 'test/pools/', ...EVERYWHERE],
  },
  {
    name: 'admissions',
    of: ['lua/admission', ...verbs('add add-bulk add-flow claim-places find-new shed caller-secret')],
    quick: [
      ...within('model', 'admission retry-after obedient-producer wake-ups'),
      ...within('queue', 'capacity reserved-places bulk overflow add-once start-in-time duplicates offer retry-after'),
      ...within('queue', 'bulk-claims deadlines add-when-free'),
      ...within('schedules', 'closed even'),
      ...within('keys', 'max-keys one-at-a-time in-time'),
      ...within('groups', 'bulks overflow deadlines'),
      ...within('inspect', 'exact'),
      ...within('shape', 'fits'),
      ...within('flow', 'flow'),
    ],
    wide: [
      'test/queue/',
      'test/flow/',
      'test/groups/',
      'test/keys/',
      'test/inspect/',
      'test/faults/add-once',
      'packages/gateway/test/shedding/',
      'packages/gateway/test/jobs/callers',
      ...EVERYWHERE,
    ],
  },
  {
    name: 'ends',
    of: [
      'lua/ends',
      ...verbs('exchange give-back cancel-job cancel-part drain-part dead-letter dead-letter-failed redrive'),
      ...verbs('remove-failed retry-failed'),
    ],
    quick: [
      ...within('model', 'ended-together depart-order found moved-slot unshaped'),
      ...within('worker', 'repeated-ends give-back-parts short-scripts close'),
      ...within('queue-limits', 'ended-together returned'),
      ...within('cancel', 'waiting many running'),
      ...within('groups', 'ends-together life places late returned'),
      ...within('failures', 'dead-letters redrive deadline'),
      ...within('queue', 'drain failed-jobs'),
      ...within('keys', 'one-at-a-time returned'),
    ],
    wide: [
      'test/worker/',
      'test/cancel/',
      'test/batches/',
      'test/faults/refused-ends',
      'test/failures/',
      'test/queue/',
      'test/groups/',
      'test/keys/',
      ...EVERYWHERE,
    ],
  },
  {
    name: 'paces',
    of: ['lua/feedback', 'lua/verbs/apply-feedback.lua'],
    quick: [
      ...within('feedback', 'applied evidence state review probe told-rates'),
      ...within('adapt', 'law groups'),
      ...within('groups', 'feedback'),
      ...within('keys', 'feedback'),
      ...within('pools', 'feedback'),
      ...within('audit', 'settled'),
      ...within('queue-limits', 'settle-charged'),
      ...within('model', 'found'),
    ],
    wide: ['test/feedback/', 'test/queue-limits/settle', 'test/groups/', 'test/keys/', ...EVERYWHERE],
  },
  {
    name: 'shapes',
    of: ['lua/shape', ...verbs('declare-shape override-shape restore-shape pause-meter')],
    quick: [
      ...within('shape', 'declaring fields fits meter-state overrides bullmq-idioms'),
      ...within('ramp', 'ramp idle'),
      ...within('schedules', 'views closed'),
      ...within('model', 'found'),
      ...within('keys', 'restored model/without-keys'),
      ...within('queue', 'cost'),
    ],
    wide: ['test/shape/', 'test/queue/', 'test/groups/', 'test/keys/', 'test/inspect/', ...EVERYWHERE],
  },
  {
    name: 'views',
    of: ['lua/views', 'lua/reports', ...verbs('view report note-history')],
    quick: [
      ...within(
        'inspect',
        'status groups group-ages held explain limit-values pauses reading silent troubles wait-split agree exact',
      ),
      ...within('keys', 'explain'),
      ...within('schedules', 'views'),
      ...within('audit', 'audit limit-audit'),
      ...within('worker', 'bypass-watch reports outcomes'),
    ],
    wide: [
      'test/inspect/',
      'test/audit/',
      'test/sharding/views',
      'packages/cli/test/',
      'packages/metrics/test/metrics',
    ],
  },
  {
    name: 'shards',
    of: ['lua/sharding', ...verbs('apply-lease grant-leases claim-shards')],
    quick: within('sharding', 'ledger stories coordinator queue'),
    wide: ['test/sharding/', 'test/limits/spread'],
  },
  {
    name: 'simulations',
    of: ['lua/simulate', 'lua/verbs/simulate.lua'],
    quick: ['packages/cli/test/simulate/'],
    wide: [],
  },
  {
    name: 'admission',
    of: ['src/admission'],
    quick: [
      ...within(
        'queue',
        'option-names job-options job-ids add-once-input add-once bulk bulk-parts bulk-claims bulk-bytes errors cost duplicates',
      ),
      ...within('queue', 'deadlines start-in-time overflow keys'),
      ...within('keys', 'lanes max-keys places'),
      ...['test/flow/flow', 'test/shape/fits', 'test/queue/add-together', 'test/queue-limits/units'],
    ],
    wide: [
      ...['test/queue/', 'test/flow/', 'test/keys/', 'test/schedules/closed', 'test/strict/', 'test/wrong-arguments'],
      ...within('faults', 'add-once unanswered-calls sent-twice durability-combined cluster hostile-names'),
      ...['packages/gateway/test/jobs/', 'test/queue-limits/', 'test/sharding/queue', 'test/shape/'],
    ],
  },
  {
    name: 'departure',
    of: ['src/departure'],
    quick: [
      ...within(
        'worker',
        'repeated-ends give-back-parts short-scripts returning-jobs ask-schedule order close jobs-per-script',
      ),
      ...within('worker', 'unreported-departures kept-ends refused-end large-jobs outcomes held'),
      'test/queue/stock-classes',
      'test/cancel/running',
    ],
    wide: ['test/worker/', 'test/queue-limits/', 'test/batches/', 'test/faults/cut-replies', ...EVERYWHERE],
  },
  {
    name: 'feedback',
    of: ['src/feedback'],
    quick: [
      ...within('feedback', 'verdicts ok-reports sanitize latency review loop destination told-rates pauses attempts'),
      'test/keys/feedback',
      'test/pools/feedback',
      'test/batches/outcomes',
    ],
    wide: [
      ...['test/feedback/', 'test/egress/', 'test/groups/feedback', 'test/wrong-arguments', 'test/model/crossings'],
      ...['test/adapt/', 'test/ramp/', 'test/queue-limits/settle', 'test/worker/attempts', 'packages/workers/test/'],
    ],
  },
  {
    name: 'shape',
    of: ['src/shape'],
    quick: [
      ...['test/shape/', 'test/sizing', 'test/ramp/', 'test/audit/limit-audit', 'test/model/expect-paced'],
      ...within('queue', 'reserved-places keys'),
      ...within('schedules', 'validation zones'),
      ...within('groups', 'overrides limits'),
    ],
    wide: [
      ...['test/wrong-arguments', 'test/groups/', 'test/keys/', 'test/schedules/', 'test/inspect/', 'test/model/'],
      ...within('faults', 'durability-combined flushall rate-change two-versions cluster-shared'),
      ...['test/worker/paused-grants', 'test/adapt/', 'test/sharding/queue', 'packages/cli/test/shape-fields'],
    ],
  },
  {
    name: 'worker',
    of: ['src/worker'],
    quick: [
      ...within('worker', 'ask-schedule departure-timer late-returns returning-jobs run-times attempts bypass-watch'),
      ...within('worker', 'worker close closing pause held overtaken-replies wake reports loop-load large-jobs calls'),
      'test/batches/',
      'test/cancel/running',
    ],
    wide: [
      ...['test/worker/', 'test/cancel/', 'test/model/', 'test/faults/unanswered-calls', 'test/feedback/'],
      ...['test/failures/', 'test/keys/in-time', 'test/queue/deadlines', 'test/wrong-arguments'],
    ],
  },
  {
    name: 'queue',
    of: ['src/queue', 'src/backend'],
    quick: [
      ...within('queue', 'offer add-when-free failed-jobs queue-events unavailable add-once drain duplicates overflow'),
      ...within('queue', 'stock-classes errors bulk deadlines redis-failures one-clock'),
      ...within('failures', 'dead-letters redrive poison'),
      ...within('groups', 'overrides line'),
      ...['test/cancel/waiting', 'test/cancel/many', 'test/flow/flow', 'test/shape/meter-state'],
      ...within('worker', 'closing kept-ends'),
    ],
    wide: [
      ...['test/queue/', 'test/failures/', 'test/cancel/', 'test/groups/', 'test/keys/', 'test/shape/', 'test/flow/'],
      ...['test/worker/', 'test/migration/', 'test/inspect/', 'test/sharding/queue', 'test/wrong-arguments'],
      ...within('faults', 'unanswered-calls sent-twice swapped-databases cluster busy-redis'),
    ],
  },
  {
    name: 'limiters',
    of: ['src/limits'],
    quick: [
      ...within('limits', 'definition local-bound local-options local-front local-bucket choosing modes refusals'),
      ...within('limits', 'safe-shape waiting waiting-stopped sources sources-combined keys leases mitigation spread'),
      ...within('schedules', 'validation zones limits'),
      ...within('queue-limits', 'units changes'),
      ...within('keys', 'own-values warm-up'),
      'test/pools/pools',
    ],
    wide: [
      ...['test/limits/', 'test/queue-limits/', 'test/shape/', 'test/schedules/', 'test/keys/', 'test/pools/'],
      ...['test/ramp/', 'test/inspect/', 'test/wrong-arguments', 'test/faults/spread-limit'],
    ],
  },
]

function within(folder: string, names: string): string[] {
  return names.split(' ').map((name) => `test/${folder}/${name}.test.ts`)
}

function verbs(...names: string[]): string[] {
  return names.flatMap((list) => list.split(' ')).map((name) => `lua/verbs/${name}.lua`)
}
