import { QueueUnavailableError } from '../errors.ts'
import { queueNameOf } from '../redis/keys.ts'
import type { ShapeStore } from '../shape/store.ts'
import { isLost } from './reply.ts'

const MAX_RESTORES = 3

/** Repeats a call after restoring state that Redis had lost; `storeOf` returns the store of the queue concerned. */
export async function withRestore(
  storeOf: (raw: readonly unknown[]) => ShapeStore,
  run: () => Promise<readonly unknown[]>,
): Promise<readonly unknown[]> {
  for (let attempt = 0; ; attempt++) {
    const raw = await run()
    if (!isLost(raw)) return raw
    const store = storeOf(raw)
    if (attempt === MAX_RESTORES) {
      throw new QueueUnavailableError(
        queueNameOf(store.base),
        `its shape was lost ${attempt + 1} times in a row`,
        false,
      )
    }
    await store.restore()
  }
}
