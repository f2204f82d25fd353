/** Code that is mutated, and the tests that know it. */
export interface Room {
  readonly name: string
  /** Its folders and files. */
  readonly of: readonly string[]
  /** The tests that notice most, soon. They run with few decisions and stories. */
  readonly quick: readonly string[]
  /** What else may notice, and the same tests with as many as always. */
  readonly wide: readonly string[]
}

/** What the quick tests draw less of. */
export const FEW: Readonly<Record<string, string>> = {
  AGEING_STORIES: '10',
  LINES_STORIES: '30',
  MODEL_ADMISSIONS: '20',
  MODEL_COMBINATIONS: '15',
  MODEL_DECISIONS: '3000',
  MODEL_ENDED_TOGETHER: '10',
  MODEL_HINTS: '20',
  MODEL_OBEDIENT: '2',
  PLACES_STORIES: '2',
  SHARE_STORIES: '1',
  SLEEPERS_RUNS: '1',
}

/** Scripts are part of all that follows. */
const EVERYWHERE = ['test/model', 'test/ageing', 'test/faults/dropped-replies', 'test/faults/unanswered-calls']

export const ROOMS: readonly Room[] = [
  {
    name: 'meter',
    of: ['lua/meter', 'lua/gate'],
    quick: models(
      'found',
      'pacing',
      'unshaped',
      'moved-slot',
      'kept-for-people',
      'reference',
      'crossings',
      'depart-order',
    ),
    wide: [...EVERYWHERE, 'test/groups/order', 'test/groups/lines', 'test/worker', 'test/queue-limits'],
  },
  {
    name: 'groups',
    of: ['lua/groups'],
    quick: [
      'test/groups/model',
      ...groups('lines', 'places', 'order', 'share', 'overrides', 'limits-per-group', 'costs'),
    ],
    wide: ['test/groups', ...EVERYWHERE, 'test/worker'],
  },
  {
    name: 'limits',
    of: ['lua/limits'],
    quick: [
      'test/limits/model',
      'test/limits/modes',
      'test/limits/refusals',
      'test/model/found',
      'test/model/crossings',
    ],
    wide: ['test/limits', 'test/queue-limits', ...EVERYWHERE],
  },
  {
    name: 'admissions',
    of: ['lua/admission', 'lua/verbs/add.lua', 'lua/verbs/add-bulk.lua', 'lua/verbs/add-flow.lua'],
    quick: [
      ...models('admission', 'retry-after', 'found', 'obedient-producer'),
      ...queue('capacity', 'reserved-places', 'bulk', 'overflow', 'add-once', 'start-in-time', 'duplicates', 'offer'),
    ],
    wide: ['test/queue', 'test/flow', 'test/groups', ...EVERYWHERE],
  },
  {
    name: 'ends',
    of: ['lua/ends', 'lua/verbs/exchange.lua'],
    quick: [
      ...models('ended-together', 'depart-order', 'found', 'moved-slot', 'unshaped'),
      ...worker('repeated-ends', 'outcomes'),
    ],
    wide: ['test/worker', 'test/faults/refused-ends', 'test/failures', 'test/groups', ...EVERYWHERE],
  },
  {
    name: 'paces of feedback',
    of: ['lua/feedback', 'lua/verbs/apply-feedback.lua'],
    quick: [
      'test/feedback/applied',
      'test/feedback/evidence',
      'test/feedback/state',
      'test/groups/feedback',
      'test/model/found',
    ],
    wide: ['test/feedback', ...EVERYWHERE],
  },
  {
    name: 'admission',
    of: ['src/admission'],
    quick: queue(
      'option-names',
      'job-ids',
      'add-once-input',
      'add-once',
      'bulk',
      'errors',
      'cost',
      'duplicates',
      'deadlines',
    ),
    wide: ['test/queue', 'test/flow', 'test/faults/add-once', 'test/faults/unanswered-calls', 'test/wrong-arguments'],
  },
  {
    name: 'departure',
    of: ['src/departure'],
    quick: [...worker('repeated-ends', 'outcomes', 'give-back-parts', 'short-scripts'), 'test/queue/stock-classes'],
    wide: [
      'test/worker',
      'test/faults/dropped-replies',
      'test/faults/unanswered-calls',
      'test/faults/cut-replies',
      'test/model',
    ],
  },
  {
    name: 'feedback',
    of: ['src/feedback'],
    quick: ['loop', 'latency', 'review', 'evidence', 'destination', 'attempts'].map((it) => `test/feedback/${it}`),
    wide: ['test/feedback', 'test/egress', 'test/groups/feedback', 'test/wrong-arguments', 'test/model/crossings'],
  },
  {
    name: 'shape',
    of: ['src/shape'],
    quick: ['test/shape', 'test/sizing', 'test/queue/reserved-places'],
    wide: ['test/wrong-arguments', 'test/groups', 'test/faults/durability', 'test/inspect', 'test/model'],
  },
  {
    name: 'worker',
    of: ['src/worker'],
    quick: worker(
      'ask-schedule',
      'departure-timer',
      'late-returns',
      'returning-jobs',
      'run-times',
      'bypass-watch',
      'worker',
    ),
    wide: ['test/worker', 'test/model', 'test/faults/unanswered-calls', 'test/feedback', 'test/failures'],
  },
  {
    name: 'limiters',
    of: ['src/limits'],
    quick: ['local-bound', 'local-options', 'choosing', 'modes', 'refusals', 'safe-shape', 'waiting'].map(
      (it) => `test/limits/${it}`,
    ),
    wide: ['test/limits', 'test/queue-limits', 'test/shape', 'test/wrong-arguments'],
  },
]

function models(...names: readonly string[]): string[] {
  return names.map((name) => `test/model/${name}.test.ts`)
}

function groups(...names: readonly string[]): string[] {
  return names.map((name) => `test/groups/${name}.test.ts`)
}

function queue(...names: readonly string[]): string[] {
  return names.map((name) => `test/queue/${name}.test.ts`)
}

function worker(...names: readonly string[]): string[] {
  return names.map((name) => `test/worker/${name}.test.ts`)
}
