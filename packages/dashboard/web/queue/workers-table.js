import { count, duration, number, perSecond, time } from '../base/format.js'
import { Table } from '../base/table.js'

/** @typedef {import('../wire.d.ts').Worker} Worker */

/** The live workers, by their last reports. */
export function workersTable() {
  return new Table('Workers', {
    columns: /** @type {import('../base/table.js').Column<Worker>[]} */ ([
      { label: 'Worker', text: ({ host, pid, name }) => `${name === undefined ? '' : `${name} · `}${host} · ${pid}` },
      { label: 'State', text: ({ state }) => state },
      {
        label: 'Running',
        isNumber: true,
        text: ({ running, concurrency }) => `${count(running)} of ${count(concurrency)}`,
      },
      { label: 'Held', isNumber: true, text: ({ held }) => count(held) },
      { label: 'Starts', isNumber: true, text: ({ ratePerSecond }) => perSecond(ratePerSecond) },
      { label: 'Started', isNumber: true, text: ({ started }) => count(started) },
      { label: 'Latest start', isNumber: true, text: ({ latenessMaxMs }) => duration(latenessMaxMs) },
      { label: 'Round trip', isNumber: true, text: ({ roundTripMs }) => duration(roundTripMs) },
      {
        label: 'Clock error',
        isNumber: true,
        text: ({ clockErrorMs }) => duration(clockErrorMs),
      },
      {
        label: 'Event loop',
        isNumber: true,
        text: ({ loopUtilisation }) => `${number(Math.round(loopUtilisation * 100))}%`,
      },
      { label: 'Since', text: ({ startedAt }) => time(startedAt) },
    ]),
    key: ({ id }) => id,
    empty: 'No worker has reported in the last minute.',
  })
}
