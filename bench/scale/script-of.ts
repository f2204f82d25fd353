import type { ShapedQueue } from 'sluice'
import type { ShapedBackend } from '../../src/backend/backend.ts'

/** Runs scripts of a queue. The types of the package do not show them. */
export function scriptOf(queue: ShapedQueue) {
  const { store } = queue.backend as unknown as ShapedBackend
  return (file: string, ...args: (string | number)[]) => store.run(file, args)
}
