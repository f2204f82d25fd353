import { hostname } from 'node:os'
import type { ShapedBackendOptions } from './backend-options.ts'
import { encodeShape, type Shape } from './shape.ts'

/** Who declares a shape: named in conflicts. */
export function defaultDeclarer(): string {
  return `${hostname()}:${process.pid}`
}

/**
 * What a class with a `shape` option asks of its backend.
 * @throws InvalidShapeError, InvalidRateError
 */
export function declaringBackendOptions(shape: Shape | undefined, declarer = defaultDeclarer()): ShapedBackendOptions {
  if (shape === undefined) return { alwaysShaped: true }
  return { alwaysShaped: true, declaration: { ...encodeShape(shape), declarer } }
}
