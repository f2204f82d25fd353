import { expect, test } from 'vitest'
import { InvalidRateError, type RateSchedule, ShapedQueue } from '../../src/index.ts'
import { decodeRate, encodeRate } from '../../src/limits/schedule.ts'

const REST = { rate: '5/s' }

test.each<[what: string, given: unknown, message: string]>([
  ['no entries', { schedule: [] }, 'rate.schedule must be a list of 1 to 200 entries such as { days'],
  ['no list', { schedule: '50/s' }, 'got "50/s"'],
  [
    'a field beside it',
    { schedule: [REST], timezone: 'UTC' },
    "rate has no field 'timezone' next to schedule; it has timeZone (did you mean 'timeZone'?)",
  ],
  [
    'an unknown zone',
    { schedule: [REST], timeZone: 'Europe/Berlni' },
    'timeZone must be an IANA name such as \'Europe/Berlin\'; got "Europe/Berlni"',
  ],
  ['an entry that is no object', { schedule: [null] }, 'rate.schedule[0] must be an object with a rate; got null'],
  [
    'an unknown field',
    { schedule: [{ ...REST, form: '08:00' }] },
    "rate.schedule[0] has no field 'form'; it has days, from, to, rate (did you mean 'from'?)",
  ],
  ['no rate', { schedule: [{ from: '08:00' }] }, "rate.schedule[0]: rate must be '50/s'"],
  ['a wrong rate', { schedule: [REST, { from: '08:00', rate: 'fast' }] }, "rate.schedule[1]: rate must be '50/s'"],
  [
    'wrong days',
    { schedule: [{ ...REST, days: 'mo-fr' }] },
    "rate.schedule[0].days must be days such as 'mon-fri', 'sat,sun' or 'mon'; got \"mo-fr\"",
  ],
  [
    'a wrong time',
    { schedule: [{ ...REST, from: '8:00' }] },
    "rate.schedule[0].from must be a time from '00:00' to '24:00'; got \"8:00\"",
  ],
  ['a time after midnight', { schedule: [{ ...REST, to: '24:01' }] }, 'rate.schedule[0].to must be a time'],
  [
    'from after to',
    { schedule: [{ ...REST, from: '20:00', to: '08:00' }] },
    'rate.schedule[0].from must be before its to; got 20:00 and 08:00. For hours over midnight, write two entries',
  ],
  [
    'an overlap',
    { schedule: [{ ...REST, from: '08:00', to: '12:00' }, { ...REST, days: 'wed', from: '11:59' }, REST] },
    'rate.schedule[0] and [1] overlap: both cover wed 11:59',
  ],
  [
    'two rests',
    { schedule: [REST, REST] },
    'rate.schedule[0] and [1] have no days, from or to: only one entry can hold for the rest of the time',
  ],
  [
    'a gap',
    {
      schedule: [
        { ...REST, days: 'mon-sat' },
        { ...REST, days: 'sun', from: '00:30' },
      ],
    },
    'rate.schedule must cover the whole week; nothing covers sun 00:00. Add an entry with a rate alone, such as { rate: 0 }, for the rest of the time',
  ],
  ['a rest of nothing', { schedule: [{ days: 'mon-sun', rate: 0 }, REST] }, 'rate.schedule[1] never applies'],
  ['nothing above 0', { schedule: [{ rate: 0 }] }, 'rate.schedule must have a rate above 0; to stop a queue, pause it'],
])('a schedule with %s is refused by name', (_what, given, message) => {
  expect(() => encodeRate(given)).toThrow(InvalidRateError)
  expect(() => encodeRate(given)).toThrow(message)
})

test.each([
  ['fri-mon', 'fri,sat,sun,mon'],
  ['sun-tue', 'sun,mon,tue'],
  ['mon-sun', 'mon,tue,wed,thu,fri,sat,sun'],
  ['wed-wed', 'wed'],
  ['Tue-wed, sat', 'tue,wed,sat'],
])('the days %s are %s', (days, each) => {
  const weekOf = (named: string) =>
    encodeRate({ schedule: [{ days: named, to: '12:00', rate: '5/s' }, { rate: 0 }] })[2]?.[2]
  expect(weekOf(days)).toEqual(weekOf(each))
})

test('a schedule is read back as it was given, and its rate is the fastest', () => {
  const given: RateSchedule = {
    schedule: [
      { days: 'mon-fri', from: '08:00', to: '20:00', rate: '50/s' },
      { days: 'Sat,sun', to: '09:30', rate: 0 },
      { rate: '100/min' },
    ],
    timeZone: 'Europe/Berlin',
  }
  const [limit, periodMs] = encodeRate(given)
  expect([limit, periodMs]).toEqual([50, 1000])
  expect(decodeRate(encodeRate(given))).toEqual(given)
  expect(decodeRate(JSON.parse(JSON.stringify(encodeRate({ schedule: [{ rate: '5/s' }] }))))).toEqual({
    schedule: [{ rate: '5/s' }],
    timeZone: 'UTC',
  })
})

test('a queue refuses a wrong schedule before it connects', () => {
  const shape = { rate: { schedule: [{ from: '08:00', rate: '5/s' }] } }
  expect(() => new ShapedQueue('q', { shape, connection: { lazyConnect: true } })).toThrow(InvalidRateError)
})
