import { type ShapedWorkerOptions, ShapedWorker as SluiceWorker } from '../../src/index.ts'

/**
 * What BullMQ's tests get under the name `Worker`: ShapedWorker with BullMQ's defaults in the two places where its own
 * differ by design. It starts jobs of queues that have no shape, and counts one stall as BullMQ does.
 */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Worker
export class ShapedWorker<D = any, R = any, N extends string = string> extends SluiceWorker<D, R, N> {
  constructor(
    name: string,
    processor: ConstructorParameters<typeof SluiceWorker<D, R, N>>[1],
    options: ShapedWorkerOptions,
  ) {
    super(name, processor, { allowUnshaped: true, maxStalledCount: 1, ...options })
  }
}
