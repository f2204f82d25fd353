/**
 * Runs work with a time limit, which can also be cancelled from outside. Either ends it at once, whether or not the
 * work heeds its signal.
 *
 * @throws what `tooLate` returns when the time is over, or the reason of `outer`.
 */
export async function withTimeLimit<T>(
  timeoutMs: number,
  tooLate: () => Error,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  outer?.throwIfAborted()
  const controller = new AbortController()
  const { signal } = controller
  const timer = setTimeout(() => controller.abort(tooLate()), timeoutMs)
  const onOuter = () => controller.abort(outer?.reason)
  outer?.addEventListener('abort', onOuter)
  // undici notices an abort only once it is connected.
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason))
  })
  try {
    return await Promise.race([work(signal), aborted])
  } finally {
    clearTimeout(timer)
    outer?.removeEventListener('abort', onOuter)
  }
}
