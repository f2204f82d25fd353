/**
 * Calls back after `ms`, unless it is stopped. The timer does not keep the process alive: the awaited command does.
 * @returns a function that stops it
 */
export function afterMs(ms: number, call: () => void): () => void {
  let firing: NodeJS.Immediate | undefined
  const timer = setTimeout(() => {
    // In a busy process the reply may have arrived but not been read yet.
    firing = setImmediate(call)
  }, Math.ceil(ms))
  timer.unref()
  return () => {
    clearTimeout(timer)
    clearImmediate(firing)
  }
}

/** Undefined if it takes longer. */
export async function withinMs<T>(timeoutMs: number, promise: Promise<T> | undefined): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => {
    // In a busy process the reply may have arrived but not been read yet.
    timer = setTimeout(() => setImmediate(resolve, undefined), timeoutMs)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** The result of a promise. @throws the result of `late`, if it takes longer */
export async function orLate<T>(timeoutMs: number, promise: Promise<T>, late: () => Error): Promise<T> {
  const answer = await withinMs(
    timeoutMs,
    promise.then((value) => ({ value })),
  )
  if (!answer) throw late()
  return answer.value
}
