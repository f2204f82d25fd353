import { OverrideWarnings } from './override-warnings.ts'
import type { ShapeStore } from './shape-store.ts'

interface Emitter {
  readonly name: string
  emit(event: string, ...args: unknown[]): boolean
}

/** Tells the users of a queue or a worker what becomes of the shape, and warns of overrides that hide it. */
export function relayShapeEvents(store: ShapeStore, to: Emitter): void {
  const warnings = new OverrideWarnings(to.name)
  store.on('shape', (shape, before) => {
    warnings.check(shape)
    to.emit('shape', shape.effective(), before?.effective())
  })
  store.on('shapeConflict', (conflict) => to.emit('shapeConflict', conflict))
  store.on('stateLoss', (loss) => to.emit('stateLoss', loss))
}
