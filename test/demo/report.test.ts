import { describe, expect, test } from 'vitest'
import {
  type Arrival,
  broken,
  type Departure,
  isSlow,
  type QueueFacts,
  reportOn,
  transits,
} from '../../workers/demo/report.ts'
import { legend, reportTable } from '../../workers/demo/report-table.ts'

const slotOf = (index: number): number => 1_000_000 + index * 20_000

const departure = (effectId: string, slotUs: number, latenessUs = 300): Departure => ({
  effectId,
  departureTimeUs: slotUs,
  departedAtUs: slotUs + latenessUs,
  latenessUs,
})

const arrival = (effectId: string, atUs: number, taken = true): Arrival => ({ effectId, atUs, taken })

/** Ten jobs at 50/s, each of which arrives 2 ms after its slot. */
function evenFacts(): QueueFacts {
  const ids = Array.from({ length: 10 }, (_, index) => `job-${index}`)
  return {
    pace: { limit: 50, periodUs: 1_000_000, burst: 1 },
    lines: 10,
    accepted: ids,
    refused: 4,
    departures: ids.map((id, index) => departure(id, slotOf(index))),
    arrivals: ids.map((id, index) => arrival(id, slotOf(index) + 2000)),
  }
}

describe('reportOn', () => {
  test('an even run keeps every promise', () => {
    const report = reportOn(evenFacts())
    expect(report).toMatchObject({
      accepted: 10,
      refused: 4,
      departures: 10,
      retried: 0,
      delivered: 10,
      lost: 0,
      twice: 0,
    })
    expect(report).toMatchObject({ ratePerSecond: 50, achievedPerSecond: 50, excessAtDeparture: 0, excessAtArrival: 0 })
    expect(report).toMatchObject({
      gapP50Us: 20_000,
      gapP99Us: 20_000,
      latenessP50Us: 300,
      latenessMaxUs: 300,
      jitterUs: 0,
    })
    expect(broken(report)).toEqual([])
  })

  test('a mail that was sent away and came again is retried, not delivered twice', () => {
    const facts = evenFacts()
    const report = reportOn({
      ...facts,
      departures: [...facts.departures, departure('job-3', slotOf(10))],
      arrivals: [
        ...facts.arrivals.map((one) => (one.effectId === 'job-3' ? { ...one, taken: false } : one)),
        arrival('job-3', slotOf(10) + 2000),
      ],
    })
    expect(report).toMatchObject({ departures: 11, retried: 1, delivered: 10, lost: 0, twice: 0, jitterUs: 0 })
  })

  test('an accepted job that never arrived is lost', () => {
    const facts = evenFacts()
    const report = reportOn({ ...facts, arrivals: facts.arrivals.slice(1) })
    expect(report).toMatchObject({ delivered: 9, lost: 1, twice: 0 })
    expect(broken(report)).toEqual(['accepted jobs that never arrived: 1'])
  })

  test('a mail that was taken two times is there twice', () => {
    const facts = evenFacts()
    const report = reportOn({ ...facts, arrivals: [...facts.arrivals, arrival('job-0', slotOf(12))] })
    expect(report).toMatchObject({ delivered: 10, lost: 0, twice: 1 })
    expect(broken(report)).toEqual(['jobs that arrived twice: 1'])
  })

  test('rows beyond the ledger are there twice, rows short of it are lost', () => {
    expect(reportOn({ ...evenFacts(), surplus: 2 })).toMatchObject({ delivered: 10, lost: 0, twice: 2 })
    expect(reportOn({ ...evenFacts(), surplus: -2 })).toMatchObject({ delivered: 8, lost: 2, twice: 0 })
  })

  test('a line that no queue accepted is missing', () => {
    const report = reportOn({ ...evenFacts(), lines: 11 })
    expect(broken(report)).toEqual(['lines that were never accepted: 1'])
  })

  test('two departures too close break the bound', () => {
    const facts = evenFacts()
    const report = reportOn({ ...facts, departures: facts.departures.with(4, departure('job-4', slotOf(4) - 1)) })
    expect(report.excessAtDeparture).toBe(1)
    expect(broken(report)).toEqual(['departures above the bound in the worst window: 1'])
  })

  test('a late start is no departure above the bound', () => {
    const facts = evenFacts()
    const report = reportOn({ ...facts, departures: facts.departures.with(4, departure('job-4', slotOf(4), 15_000)) })
    expect(report).toMatchObject({ excessAtDeparture: 0, latenessMaxUs: 15_000, gapP99Us: 34_700 })
  })

  test('the receiver is allowed exactly the jitter that was measured', () => {
    const facts = evenFacts()
    const report = reportOn({ ...facts, arrivals: facts.arrivals.with(4, arrival('job-4', slotOf(5) + 1500)) })
    expect(report).toMatchObject({ jitterUs: 19_500, excessAtArrival: 0 })
  })

  test('a slot of an uneven interval may be a microsecond early by rounding, and no more', () => {
    const pace = { limit: 3, periodUs: 1_000_000, burst: 1 }
    const run = (slots: readonly number[]): number =>
      reportOn({ ...evenFacts(), pace, departures: slots.map((slot, i) => departure(`job-${i}`, slot)) })
        .excessAtDeparture
    expect(run([0, 333_333, 666_667, 1_000_000])).toBe(0)
    expect(run([0, 333_331])).toBe(1)
  })

  test('starts without slots are measured by the start itself', () => {
    const facts = evenFacts()
    const report = reportOn({
      ...facts,
      departures: facts.departures.map(({ effectId }, index) => ({ effectId, departedAtUs: 1_000_000 + index * 200 })),
    })
    expect(report).toMatchObject({ excessAtDeparture: 9, latenessP50Us: undefined, gapP50Us: 200 })
  })

  test('a run in which nothing happened has a report too', () => {
    const report = reportOn({ ...evenFacts(), lines: 0, accepted: [], departures: [], arrivals: [] })
    expect(report).toMatchObject({
      delivered: 0,
      lost: 0,
      achievedPerSecond: undefined,
      excessAtDeparture: 0,
      jitterUs: 0,
    })
  })
})

test('a queue is slow below 98 % of its rate', () => {
  const report = reportOn(evenFacts())
  expect(isSlow({ ...report, achievedPerSecond: 49 })).toBe(false)
  expect(isSlow({ ...report, achievedPerSecond: 48.9 })).toBe(true)
  expect(isSlow({ ...report, achievedPerSecond: undefined })).toBe(false)
})

test('transits pairs the attempts of a job in their order', () => {
  const departures = [departure('a', 100), departure('a', 500), departure('b', 200)]
  const arrivals = [arrival('a', 540), arrival('b', 210), arrival('a', 130, false), arrival('stranger', 1)]
  expect(transits(departures, arrivals)).toEqual([30, 10, 40])
})

describe('reportTable', () => {
  test('has a column for each queue, aligned', () => {
    const report = reportOn(evenFacts())
    const lines = reportTable([
      { heading: ['emails', 'Sluice'], report },
      {
        heading: ['emails', 'BullMQ limiter'],
        report: { ...report, latenessMaxUs: undefined, achievedPerSecond: 0.5 },
      },
    ]).split('\n')
    expect(lines[0]).toMatch(/^ +emails +emails$/)
    expect(lines[1]).toMatch(/^ +Sluice +BullMQ limiter$/)
    expect(lines).toContainEqual(expect.stringMatching(/^lost +0 +0$/))
    expect(lines).toContainEqual(expect.stringMatching(/^rate achieved +50\.00\/s +30\.00\/min$/))
    expect(lines).toContainEqual(expect.stringMatching(/^lateness of starts, worst +0\.3 ms +–$/))
    expect(lines).toContainEqual(expect.stringMatching(/^ {2}maxLatenessMs allows +100\.0 ms +–$/))
    const width = lines[2]!.length
    expect(lines.filter((line) => line.length !== width && line !== lines[0])).toEqual([])
  })

  test('of one run fits 80 columns, with times of minutes too, and so does what explains it', () => {
    const report = { ...reportOn(evenFacts()), gapP99Us: 1_800_000_000, jitterUs: 600_000_000 }
    const columns = ['emails', 'db-writes'].map((name) => ({ heading: [name, 'Sluice'], report }))
    const lines = `${reportTable(columns)}\n${legend}`.split('\n')
    expect(lines.filter((line) => line.length > 80)).toEqual([])
  })
})
