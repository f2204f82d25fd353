import { describe, expect, test } from 'vitest'
import { areAllHeld, conditionsOf } from '../../../../src/inspect/conditions.ts'

const WEB = new URL('../../web/', import.meta.url)
const format = await import(new URL('base/format.js', WEB).href)
const { figuresOf } = await import(new URL('charts/points.js', WEB).href)
const { LineOfTime, RANGES } = await import(new URL('charts/line-of-time.js', WEB).href)
const { Flow } = await import(new URL('base/flow.js', WEB).href)
const { rateCause } = await import(new URL('base/queue-text.js', WEB).href)
const { kindOf, scheduleText, whatOf } = await import(new URL('base/change-text.js', WEB).href)
const { nowSentence } = await import(new URL('base/hold-text.js', WEB).href)
const { historyRows } = await import(new URL('queue/history-groups.js', WEB).href)

const START = Date.parse('2026-01-31T12:00:00Z')
const NOTHING_HELD = { rate: 0, limits: 0, concurrency: 0, pause: 0, workers: 0 }

/** What a worker wrote of a queue, so many ms after the start. */
function pointAt(ms: number, more: object = {}) {
  return {
    at: new Date(START + ms).toISOString(),
    ...{ accepted: 0, departed: 0, refused: 0, dropped: 0, depth: 0, waiting: 0, active: 0 },
    ...{ starts: 0, latenessSumMs: 0, latenessMaxMs: 0, heldMs: NOTHING_HELD, paused: false },
    ...{ completed: 0, failed: 0, failedAttempts: 0, bypassed: 0 },
    ...more,
  }
}

/** What an event tells of a queue. */
function queueAt(ms: number, acceptedTotal: number, departedTotal: number, refusedTotal = 0, droppedTotal = 0) {
  return {
    at: new Date(START + ms).toISOString(),
    ...{ acceptedTotal, departedTotal, refusedTotal, droppedTotal },
    ...{ completedTotal: 2 * departedTotal, failedAttemptsTotal: 3 * refusedTotal, bypassedTotal: 4 * refusedTotal },
    ...{ depth: acceptedTotal - departedTotal, waiting: 0, active: 0, paused: false, rate: '10/s' },
    ...{ starts: { count: 0, latenessSumMs: 0 }, workers: [], heldMs: NOTHING_HELD },
  }
}

describe('numbers as people read them', () => {
  test.each([
    [0, '0'],
    [0.123456, '0.123'],
    [49.96, '50'],
    [1234.5, '1,235'],
    [undefined, '–'],
    [Number.NaN, '–'],
  ])('number %j is %s', (value, text) => {
    expect(format.number(value)).toBe(text)
  })

  test.each([
    [0, '0 s'],
    [0.4567, '0.457 ms'],
    [12.3, '12 ms'],
    [999, '1000 ms'],
    [1500, '1.5 s'],
    [59_400, '59 s'],
    [61_000, '1 min 1 s'],
    [3_600_000, '1 h'],
    [90_000_000, '1 d 1 h'],
    [undefined, '–'],
  ])('%j ms are %s', (ms, text) => {
    expect(format.duration(ms)).toBe(text)
  })

  test.each([
    ['50/s', 50, '50/s'],
    ['1000/min', 1000 / 60, '1,000/min'],
    ['90/15min', 0.1, '90/15min'],
    ['33.3333/s', 33.3333, '33.3/s'],
    ['1e-7/s', 1e-7, '1e-7/s'],
    ['5/250ms', 20, '5/250ms'],
    [undefined, undefined, 'not paced'],
    ['fast', undefined, 'fast'],
  ])('the rate %j is %j a second, and reads %s', (rate, perSecond, text) => {
    expect(format.unitsPerSecond(rate)).toEqual(perSecond === undefined ? undefined : expect.closeTo(perSecond, 9))
    expect(format.rate(rate)).toBe(text)
  })
})

describe('what went on between totals', () => {
  test('is a second, and parts of the time that something held', () => {
    const figures = figuresOf(
      [
        pointAt(0),
        pointAt(2000, {
          ...{ accepted: 100, departed: 80, refused: 10, dropped: 4, depth: 20, ratePerSecond: 40 },
          ...{ completed: 70, failedAttempts: 12, failed: 2, bypassed: 6 },
          ...{ starts: 80, latenessSumMs: 160, latenessMaxMs: 9, heldMs: { ...NOTHING_HELD, rate: 1500, pause: 500 } },
        }),
      ],
      2000,
    )
    expect(figures).toEqual({
      at: [START / 1000 + 2],
      ...{ arrivals: [50], departures: [40], refused: [5], dropped: [2], rate: [40], depth: [20] },
      ...{ completed: [35], failedAttempts: [6], failed: [1], bypassed: [3] },
      ...{ latenessMean: [2], latenessMax: [9], held: [[0.75], [0], [0], [0.25], [0]], paused: [] },
    })
  })

  test('is unknown where the queue was made anew, and lateness where nothing started', () => {
    const { departures, latenessMean } = figuresOf([pointAt(0, { departed: 50 }), pointAt(2000)], 2000)
    expect({ departures, latenessMean }).toEqual({ departures: [null], latenessMean: [null] })
  })

  test('is even over an idle time, and unknown in a gap that is longer than a minute', () => {
    const idle = figuresOf([pointAt(0, { depth: 7 }), pointAt(20_000, { accepted: 20, depth: 27 })], 2000)
    expect(idle.at).toEqual([START / 1000 + 2, START / 1000 + 20])
    expect(idle.arrivals).toEqual([1, 1])
    expect(idle.depth).toEqual([7, 27])
    const gap = figuresOf([pointAt(0), pointAt(61_000, { accepted: 61 })], 2000)
    expect(gap.arrivals).toEqual([null, 1])
  })

  test('single jobs of a slow queue are no spikes, and a burst is as wide as the mean is long', () => {
    const slow = Array.from({ length: 150 }, (_, i) => pointAt(i * 2000, { departed: Math.floor((i * 2) / 7) }))
    const { departures } = figuresOf(slow, 2000)
    const late = departures.slice(30).map((value: number) => value * 7)
    expect([Math.min(...late), Math.max(...late)]).toEqual([expect.closeTo(0.93, 1), expect.closeTo(1.05, 1)])
    const burst = Array.from({ length: 30 }, (_, i) => pointAt(i * 2000, { departed: i < 10 ? 0 : 500 }))
    const flows = figuresOf(burst, 2000).departures
    expect(flows.filter((value: number) => value > 0)).toEqual(Array.from({ length: 5 }, () => 50))
  })

  test('nothing happened in a gap after which all is as before it', () => {
    const idle = figuresOf([pointAt(0, { depth: 3 }), pointAt(300_000, { depth: 3 })], 2000)
    expect([idle.departures, idle.depth]).toEqual([
      [0, 0],
      [3, 3],
    ])
  })

  test('pauses that follow each other are one', () => {
    const points = [0, 2000, 4000, 6000, 8000].map((ms) => pointAt(ms, { paused: ms === 2000 || ms === 4000 }))
    expect(figuresOf(points, 2000).paused).toEqual([[START / 1000, START / 1000 + 4]])
  })
})

describe('the line of time', () => {
  test('goes on from what Redis keeps, a step at a time', () => {
    const line = new LineOfTime(RANGES[0])
    line.push(queueAt(5000, 50, 50))
    line.fill([pointAt(0), pointAt(2000, { accepted: 20, departed: 20 })])
    for (const ms of [5500, 6000, 7000, 9000]) line.push(queueAt(ms, ms / 100, ms / 100))
    const { figures, from, to } = line.figures()
    expect({ from, to }).toEqual({ from: (START + 9000) / 1000 - 600, to: (START + 9000) / 1000 })
    expect(figures.at.map((at: number) => at * 1000 - START)).toEqual([2000, 5000, 7000, 9000])
    expect(figures.arrivals).toEqual([10, 10, 10, 10])
  })

  test('forgets what is too old, and shows what is half a step old', () => {
    const line = new LineOfTime(RANGES[1])
    line.fill(Array.from({ length: 600 }, (_, i) => pointAt((i - 599) * 15_000)))
    for (const ms of [15_000, 20_000]) line.push(queueAt(ms, 0, 0))
    expect(line.figures().figures.at).toHaveLength(481)
    expect(line.figures().figures.at.at(-1)).toBe(START / 1000 + 15)
    line.push(queueAt(23_000, 0, 0))
    expect(line.figures().figures.at.at(-1)).toBe(START / 1000 + 23)
  })

  test('has no peak where the queue could not be read for a while', () => {
    const line = new LineOfTime(RANGES[0])
    for (const ms of [0, 2000, 4000]) line.push(queueAt(ms, 1e6 + ms / 100, 1e6 + ms / 100))
    for (let ms = 6000; ms <= 38_000; ms += 2000) line.push({ ...queueAt(ms, 0, 0), unread: ['queue'] })
    for (const ms of [40_000, 42_000]) line.push(queueAt(ms, 1e6 + ms / 100, 1e6 + ms / 100))
    expect(Math.max(...line.figures().figures.departures)).toBe(10)
  })
})

describe('flow', () => {
  test('is the mean over the last ten seconds, what was dropped apart from the refused', () => {
    const flow = new Flow()
    flow.push(queueAt(0, 0, 0))
    expect(flow.perSecond()).toBeUndefined()
    for (let s = 1; s <= 30; s += 1) flow.push(queueAt(s * 1000, s * 100, s <= 20 ? 0 : (s - 20) * 50, s, s))
    expect(flow.perSecond()).toEqual({
      ...{ arrivals: 100, departures: 50, refusals: 1, drops: 1 },
      ...{ completions: 100, failures: 3, bypasses: 4 },
    })
  })

  test('begins again where totals fall, and takes no moment twice', () => {
    const flow = new Flow()
    flow.push(queueAt(0, 100, 100))
    flow.push(queueAt(1000, 10, 10))
    flow.push(queueAt(1000, 10, 10))
    expect(flow.perSecond()).toBeUndefined()
    flow.push(queueAt(2000, 13, 12))
    expect(flow.perSecond()).toMatchObject({ arrivals: 3, departures: 2, refusals: 0, drops: 0 })
  })

  test('is unknown while the queue cannot be read, and has no peak afterwards', () => {
    const flow = new Flow()
    for (const s of [0, 1]) flow.push(queueAt(s * 1000, 1e6 + s, 1e6 + s))
    for (const s of [2, 3]) flow.push({ ...queueAt(s * 1000, 0, 0), unread: ['queue'] })
    expect(flow.perSecond()).toBeUndefined()
    flow.push(queueAt(4000, 1e6 + 4, 1e6 + 4))
    expect(flow.perSecond()).toBeUndefined()
    flow.push(queueAt(5000, 1e6 + 5, 1e6 + 5))
    expect(flow.perSecond()).toMatchObject({ arrivals: 1, departures: 1, refusals: 0, drops: 0 })
    for (const s of [6, 7]) flow.push({ ...queueAt(s * 1000, 2 * s, s), unread: [1] })
    expect(flow.perSecond()).toMatchObject({ arrivals: 2, departures: 1, refusals: 0, drops: 0 })
    flow.push(queueAt(8000, 1e6 + 8, 1e6 + 8))
    expect(flow.perSecond()).toBeUndefined()
  })
})

describe('the history in rows', () => {
  const feedback = (s: number, rate: number, more: object = {}) => ({
    ...{ id: `${s}-0`, at: new Date(START + s * 1000).toISOString(), kind: 'feedback', by: 'worker-1234567890' },
    ...{ reason: '429', change: { kind: 'slow', rate, ...more } },
  })
  const override = { ...feedback(99, 0), kind: 'override', by: 'ada', reason: 'why', change: { rate: [20, 1000] } }

  test('many changes of feedback are one, with the range and the last of them', () => {
    const rows = historyRows([
      ...Array.from({ length: 40 }, (_, i) => feedback(140 - i, 10 + i)),
      override,
      feedback(50, 3),
    ])
    expect(rows).toHaveLength(3)
    expect(rows[0]).toMatchObject({
      ...{ what: 'Feedback, 40 changes', change: 'rate 10 to 49/s; last: slower, rate 10/s', why: '429' },
      ...{ when: expect.stringMatching(/ – /), who: 'worker worker-1' },
    })
    expect(rows[2]).toMatchObject({ what: 'Feedback: slower', change: 'rate 3/s' })
  })

  test('feedback of another group, and another reason, are told apart', () => {
    const acme = { scope: { group: 'acme' } }
    const changes = [feedback(9, 1, acme), { ...feedback(8, 2, acme), reason: '503' }, feedback(7, 3)]
    expect(historyRows(changes).map(({ why }: { why: string }) => why)).toEqual(['429 (and 1 other reason)', '429'])
  })
})

describe('changes in words', () => {
  test.each([
    ['override', { rate: [20, 1000], capacity: null }, 'Override', 'rate 20/s, capacity no limit'],
    ['override', { rate: [30, 60_000] }, 'Override', 'rate 30/min'],
    ['override', { rate: [90, 900_000] }, 'Override', 'rate 90 in 15 min'],
    ['override', { rate: [50, 1000, ['UTC', [], [], []]] }, 'Override', 'rate 50/s and less, by a schedule'],
    [
      'feedback',
      { kind: 'slow', rate: 32, from: 50, source: 'http', hard: true },
      'Feedback: slower',
      'rate 32/s, from 50/s',
    ],
    ['redrive', {}, 'Redrive', ''],
    ['job', { retried: 'a-1' }, 'Job', 'retried a-1'],
    ['group', { group: 'acme', rate: [10, 1000], weight: null }, 'Group', 'acme rate 10/s, weight no limit'],
    ['group', { group: 'acme', burst: { clear: true } }, 'Group', 'acme burst cleared'],
    ['group', { group: 'acme', paused: true }, 'Group', 'acme paused'],
    ['group', { group: 'acme', paused: { clear: true }, limited: { clear: true } }, 'Group', 'acme resumed'],
    ['declared', { limits: [{ name: 'a' }] }, 'Declared', 'limits [{"name":"a"}]'],
    [
      'declared',
      { groups: { rate: [2, 1000], share: { ofFree: 0.5 } } },
      'Declared',
      'groups rate 2/s, share 0.5 × the free places',
    ],
    ['declared', { groups: {} }, 'Declared', 'groups no defaults'],
    [
      'declared',
      { durability: { replicas: 1, timeoutMs: 500 } },
      'Declared',
      'durability replicas 1, timeoutMs 500 ms',
    ],
  ])('%s %j', (kind, change, title, text) => {
    const entry = { id: '1-0', at: new Date(START).toISOString(), kind, by: 'ada', reason: '', change }
    expect([kindOf(entry), whatOf(entry)]).toEqual([title, text])
  })
})

describe('a rate that follows the clock', () => {
  const schedule = {
    schedule: [{ days: 'mon-fri', from: '08:00', rate: '50/s' }, { days: 'sun', rate: 0 }, { rate: '5/s' }],
    timeZone: 'Europe/Berlin',
  }
  // A Monday, in winter.
  const rateChangesAt = '2026-02-02T07:00:00.000Z'

  test.each([
    ['declared', 'until Mon 08:00 Europe/Berlin'],
    ['closed', 'closed until Mon 08:00 Europe/Berlin'],
    ['override', 'overridden, until Mon 08:00 Europe/Berlin'],
  ])('says when it changes next: %s', (cause, text) => {
    expect(rateCause({ cause, rateChangesAt, shape: { schedule } })).toBe(text)
  })

  test('is shown with the hours of each rate', () => {
    expect(scheduleText(schedule)).toBe('50/s mon-fri 08:00 to 24:00; closed sun; 5/s otherwise; Europe/Berlin')
  })

  test('holds the next job until it opens', () => {
    const closed = { until: rateChangesAt, timeZone: 'Europe/Berlin' }
    const of = (hold: object) =>
      nowSentence({
        conditions: [],
        at: new Date(START).toISOString(),
        hold: { since: rateChangesAt, closed, ...hold },
      })
    const until = /until Mon 08:00 Europe\/Berlin: its schedule lets nothing leave\.$/
    expect(of({ cause: 'rate' })).toMatch(/^The rate has held the next job since /)
    expect(of({ cause: 'rate' })).toMatch(until)
    const limit = of({ cause: 'limits', limit: 'quiet', keys: { group: 'acme' } })
    expect(limit).toMatch(/^The limit quiet of group acme has held /)
    expect(limit).toMatch(until)
  })
})

describe('what holds the next job, in a sentence', () => {
  const workers = [
    { concurrency: 5, running: 5, held: 0, state: 'running' },
    { concurrency: 5, running: 0, held: 0, state: 'paused' },
  ]
  const sentence = (cause: string, more: object) =>
    nowSentence({
      conditions: [],
      at: new Date(START + 5000).toISOString(),
      hold: { cause, since: new Date(START).toISOString() },
      ...more,
    })

  test('says of workers that take none how many of their places are taken', () => {
    expect(sentence('workers', { workers })).toMatch(
      /^No worker has asked .*: 2 workers, 5 of 10 places taken, 1 paused\.$/,
    )
    for (const other of [sentence('workers', { workers: [] }), sentence('rate', { workers })]) {
      expect(other).not.toContain('places')
    }
  })

  test('says why the queue is paused, if that is known', () => {
    expect(sentence('pause', { pauseReason: 'credentials are rotated' })).toMatch(
      /since [^.]*: credentials are rotated\.$/,
    )
    expect(sentence('pause', {})).toMatch(/since [\d:, \w]+\.$/)
  })

  test('names the limit and the group that hold it', () => {
    const since = new Date(START).toISOString()
    expect(sentence('limits', { hold: { cause: 'limits', limit: 'tokens', group: 'a', since } })).toMatch(
      /^The limit tokens of group a has held the next job/,
    )
    expect(sentence('rate', { hold: { cause: 'rate', group: 'a', since } })).toMatch(/^The rate of group a has held/)
  })

  test('says that the rate of a group holds, where it is not that of the queue', () => {
    const groups = { waiting: 0, limited: 1, maxed: 0, paused: 2 }
    const hold = { cause: 'rate', since: new Date(START).toISOString(), until: new Date(START + 9000).toISOString() }
    const held = { hold, groups, waiting: 5, grouped: 5 }
    const of = (queue: object) => sentence('rate', { ...queue, areAllHeld: areAllHeld(queue as never) })
    expect(of(held)).toMatch(
      /^All waiting jobs belong to groups that are held: 2 groups paused, 1 group held by its rate, the first until .*\. See/,
    )
    for (const more of [
      { ...held, grouped: 4 },
      { ...held, groups: { ...groups, waiting: 1 } },
    ]) {
      expect(of(more)).toMatch(/^The rate has held/)
    }
  })

  test.each([
    [undefined, 'enforce', 'new jobs are refused'],
    ['drop-oldest', 'enforce', 'each new job drops the oldest'],
    ['drop-lowest', 'enforce', 'each new job drops a less important one, or is refused'],
    [undefined, 'shadow', 'new jobs would be refused'],
    [undefined, 'off', 'nothing is refused, since the mode is off'],
  ])('says what follows where the queue is full: overflow %j, mode %s', (overflow, mode, text) => {
    const of = (depth: number) => {
      const queue = { name: 'mails', depth, capacity: 5, workers: [], shape: { overflow, mode, overrides: {} } }
      return sentence('rate', { ...queue, conditions: conditionsOf(queue as never) })
    }
    expect(of(5)).toMatch(new RegExp(`The queue is full: ${text}\\.$`))
    expect(of(4)).not.toContain('full')
  })
})
