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
  AGEING_STORIES: '5',
  LINES_STORIES: '60',
  MODEL_COMBINATIONS: '6',
  MODEL_DECISIONS: '1500',
  MODEL_ENDED_TOGETHER: '5',
  MODEL_HINTS: '8',
  MODEL_OBEDIENT: '1',
  PLACES_STORIES: '4',
  SHARE_STORIES: '1',
  SLEEPERS_RUNS: '1',
}

/** Scripts are part of all that follows. */
const EVERYWHERE = ['test/model/', 'test/ageing/', 'test/faults/dropped-replies', 'test/faults/unanswered-calls']

export const ROOMS: readonly Room[] = [
  {
    name: 'meter',
    of: ['lua/meter', 'lua/gate'],
    quick: [
      ...within(
        'model',
        'found pacing unshaped moved-slot kept-for-people reference crossings depart-order wake-ups sleepers',
      ),
      ...within('ageing', 'order places'),
      'test/groups/lines',
      'test/feedback/probe',
    ],
    wide: [...EVERYWHERE, 'test/groups/', 'test/worker/', 'test/queue-limits/', 'test/faults/clock', 'test/feedback/'],
  },
  {
    name: 'groups',
    of: ['lua/groups'],
    quick: within('groups', 'lines places order share overrides limits-per-group bulks feedback line'),
    wide: ['test/groups/', ...EVERYWHERE, 'test/worker/', 'test/inspect/'],
  },
  {
    name: 'limits',
    of: ['lua/limits'],
    quick: [
      ...within('limits', 'model/decisions model/log-and-days modes refusals versions'),
      ...within('queue-limits', 'concurrency returned'),
      'test/model/crossings',
    ],
    wide: ['test/limits/', 'test/queue-limits/', ...EVERYWHERE],
  },
  {
    name: 'admissions',
    of: ['lua/admission', 'lua/verbs/add.lua', 'lua/verbs/add-bulk.lua', 'lua/verbs/add-flow.lua'],
    quick: [
      ...within('model', 'admission retry-after obedient-producer wake-ups'),
      ...within('queue', 'capacity reserved-places bulk overflow add-once start-in-time duplicates offer'),
      'test/flow/flow',
      'test/groups/bulks',
    ],
    wide: ['test/queue/', 'test/flow/', 'test/groups/', 'test/inspect/exact', ...EVERYWHERE],
  },
  {
    name: 'ends',
    of: ['lua/ends', 'lua/verbs/exchange.lua'],
    quick: [
      ...within('model', 'ended-together depart-order found moved-slot unshaped'),
      ...within('worker', 'repeated-ends give-back-parts short-scripts'),
      'test/queue-limits/ended-together',
    ],
    wide: ['test/worker/', 'test/faults/refused-ends', 'test/failures/', 'test/groups/', ...EVERYWHERE],
  },
  {
    name: 'paces',
    of: ['lua/feedback', 'lua/verbs/apply-feedback.lua'],
    quick: [
      ...within('feedback', 'applied evidence state review'),
      'test/groups/feedback',
      'test/audit/settled',
      'test/queue-limits/settle-charged',
      'test/model/found',
    ],
    wide: ['test/feedback/', 'test/queue-limits/settle', ...EVERYWHERE],
  },
  {
    name: 'admission',
    of: ['src/admission'],
    quick: within(
      'queue',
      'option-names job-ids add-once-input add-once bulk bulk-parts errors cost duplicates deadlines',
    ),
    wide: ['test/queue/', 'test/flow/', 'test/faults/add-once', 'test/faults/unanswered-calls', 'test/wrong-arguments'],
  },
  {
    name: 'departure',
    of: ['src/departure'],
    quick: [
      ...within('worker', 'repeated-ends give-back-parts short-scripts returning-jobs ask-schedule order'),
      'test/queue/stock-classes',
    ],
    wide: ['test/worker/', 'test/queue-limits/', 'test/faults/cut-replies', ...EVERYWHERE],
  },
  {
    name: 'feedback',
    of: ['src/feedback'],
    quick: within('feedback', 'verdicts ok-reports sanitize latency review'),
    wide: ['test/feedback/', 'test/egress/', 'test/groups/feedback', 'test/wrong-arguments', 'test/model/crossings'],
  },
  {
    name: 'shape',
    of: ['src/shape'],
    quick: ['test/shape/', 'test/sizing', 'test/queue/reserved-places'],
    wide: ['test/wrong-arguments', 'test/groups/', 'test/faults/durability', 'test/inspect/', 'test/model/'],
  },
  {
    name: 'worker',
    of: ['src/worker'],
    quick: within(
      'worker',
      'ask-schedule departure-timer late-returns returning-jobs run-times attempts bypass-watch worker',
    ),
    wide: ['test/worker/', 'test/model/', 'test/faults/unanswered-calls', 'test/feedback/', 'test/failures/'],
  },
  {
    name: 'limiters',
    of: ['src/limits'],
    quick: within('limits', 'definition local-bound local-options choosing modes refusals safe-shape waiting'),
    wide: ['test/limits/', 'test/queue-limits/', 'test/shape/', 'test/wrong-arguments'],
  },
]

function within(folder: string, names: string): string[] {
  return names.split(' ').map((name) => `test/${folder}/${name}.test.ts`)
}
