import { h } from '../base/dom.js'
import { ActionBar } from './action-bar.js'
import { checklist, field } from './action-form.js'
import { redriveDialog } from './letter-actions.js'
import { shapeDialog } from './shape-form.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {Queue & { deadQueues: () => readonly string[] }} Changed deadQueues: the known ones, the selected one first
 */

const MODES = /** @type {const} */ ([
  ['enforce', 'Enforce: jobs are held and refused'],
  ['shadow', 'Shadow: only count what would be held or refused'],
  ['off', 'Off: neither hold nor count'],
])

/** @type {readonly import('./action-bar.js').Change<Changed>[]} */
const CHANGES = [
  { label: 'Change limits', dialog: shapeDialog },
  {
    label: 'Pause',
    isFor: ({ paused }) => !paused,
    dialog: () => ({
      title: 'Pause',
      note: 'No job starts during the pause. Running jobs continue, and new jobs are accepted while there is room.',
      button: 'Pause',
      done: 'The queue is paused.',
      forGood: 'Until it is resumed',
      action: () => ({ action: 'pause' }),
    }),
  },
  {
    label: 'Resume',
    isFor: ({ paused, pausedUntil }) => paused || pausedUntil !== undefined,
    dialog: () => ({
      title: 'Resume',
      note: 'Lifts every pause of the queue. Jobs leave again at the rate.',
      button: 'Resume',
      done: 'The queue is resumed.',
      action: () => ({ action: 'resume' }),
    }),
  },
  {
    label: 'Mode',
    dialog: ({ shape }) => {
      const now = shape?.mode ?? 'enforce'
      const options = MODES.map(([mode, label]) => h('option', { value: mode, selected: mode === now }, label))
      const select = h('select', { id: 'action-mode' }, ...options)
      return {
        title: 'Mode',
        note: 'Whether the shape is enforced.',
        button: 'Change',
        done: 'The mode is changed.',
        fields: [field('Mode', select)],
        forGood: 'Until it is cleared',
        action: () => ({ action: 'setMode', mode: select.value }),
      }
    },
  },
  {
    label: 'Clear overrides',
    isFor: ({ shape }) => Object.keys(shape?.overrides ?? {}).length > 0,
    dialog: ({ shape }) => {
      const list = checklist('Overrides', Object.keys(shape?.overrides ?? {}))
      return {
        title: 'Clear overrides',
        note: 'The declared values apply again.',
        button: 'Clear',
        done: 'The overrides are cleared.',
        fields: [list.element],
        action: () => ({ action: 'clearShape', fields: list.chosen }),
      }
    },
  },
  { label: 'Redrive', dialog: ({ deadQueues }) => redriveDialog(deadQueues()) },
]

/** The buttons that change a queue. */
export function queueActions() {
  return new ActionBar('Actions', CHANGES, { queue: ({ name }) => name })
}
