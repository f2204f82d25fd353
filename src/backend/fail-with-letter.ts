import type { AddCall } from '../admission/add-call.ts'
import type { Argument } from '../redis/commands.ts'
import type { ShapeStore } from '../shape/store.ts'

/** Keys of BullMQ's moveToFinished and addStandardJob. */
const FINISH_KEYS = 14
const ADD_KEYS = 9

/** A call of BullMQ's moveToFinished that fails a job. */
export interface FailCall {
  readonly args: readonly Argument[]
  /** Whether the job is not kept; its end is then remembered for `memoMs`. */
  readonly discarded: boolean
  readonly memoMs: number
}

/**
 * Fails a job for good and adds its dead letter, both or neither.
 * @returns BullMQ's code of moveToFinished
 */
export async function failWithLetter(
  store: ShapeStore,
  { args, discarded, memoMs }: FailCall,
  letter: Pick<AddCall, 'args'>,
): Promise<number> {
  const keys = [...args.slice(0, FINISH_KEYS), ...letter.args.slice(0, ADD_KEYS)]
  const rest = [...args.slice(FINISH_KEYS), ...letter.args.slice(ADD_KEYS), discarded ? 1 : 0, memoMs]
  return (await store.run('dead-letter', [...keys, ...rest])) as number
}
