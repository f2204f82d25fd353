import { noteQueueLimits } from '../limits/same-names.ts'
import { plainText } from '../plain-text.ts'
import { formatValue, isSameValue } from './shape.ts'
import type { ShapeStore } from './store.ts'
import type { StoredShape } from './stored.ts'

interface Emitter {
  readonly name: string
  emit(event: string, ...args: unknown[]): boolean
}

/** Relays changes of the shape to a queue or a worker, and warns of overrides that hide a declaration. */
export function relayShapeEvents(store: ShapeStore, to: Emitter): void {
  const warnings = new OverrideWarnings(to.name)
  store.on('shape', (shape, before) => {
    warnings.check(shape)
    noteQueueLimits(to.name, shape.effective().limits)
    to.emit('shape', shape.effective(), before?.effective())
  })
  store.on('shapeConflict', (conflict) => to.emit('shapeConflict', conflict))
  store.on('stateLoss', (loss) => to.emit('stateLoss', loss))
}

/** Author of the overrides that hold a shard's lease. Same as in lua/sharding/lease.lua. */
const LEASES = 'shards'

/** Warnings issued in this process, which may have many workers of one queue. */
const warned = new Set<string>()

/** Warns, once per override and process, if an override hides a declared value. */
class OverrideWarnings {
  readonly #queueName: string

  constructor(queueName: string) {
    this.#queueName = queueName
  }

  check(shape: StoredShape): void {
    const declared = shape.declared()
    for (const [field, { value, by, reason, setAt, until }] of Object.entries(shape.overrides())) {
      const hidden = declared[field]
      const id = `${this.#queueName}:${shape.id}:${field}:${setAt.getTime()}`
      if (!hidden || by === LEASES || isSameValue(hidden.value, value) || warned.has(id)) continue
      warned.add(id)
      const end = until ? `until ${until.toISOString()}` : 'until it is cleared'
      const set = `${field} is ${value === null ? 'not limited' : formatValue(value)} ${end}`
      const why = `by an override of ${by} (${reason}); ${hidden.by} declares ${formatValue(hidden.value)}`
      // Node writes the text to the terminal unescaped.
      process.emitWarning(plainText(`queue "${this.#queueName}": ${set} ${why}`), { code: 'SLUICE_OVERRIDE' })
    }
  }
}
