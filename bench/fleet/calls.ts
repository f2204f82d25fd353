/** Calls to another process and their answers, over the IPC channel. */

/** The methods of a process: each has at most one parameter, which can be sent over IPC. */
export type MethodTable<M> = { readonly [K in keyof M]: (parameter: never) => Promise<unknown> }

export interface Call {
  readonly call: number
  readonly method: string
  readonly parameter: unknown
}

export type Answer =
  | { readonly call: number; readonly result: unknown }
  | { readonly call: number; readonly error: string }

/** Answers the calls of the parent, and exits with it. */
export function serve<M extends MethodTable<M>>(methods: M): void {
  const named = methods as unknown as Readonly<Record<string, (parameter: unknown) => Promise<unknown>>>
  const answer = async ({ call, method, parameter }: Call): Promise<Answer> => {
    try {
      return { call, result: await named[method]?.(parameter) }
    } catch (error) {
      return { call, error: error instanceof Error ? (error.stack ?? error.message) : String(error) }
    }
  }
  process.on('message', (call: Call) => void answer(call).then((reply) => process.send?.(reply)))
  process.once('disconnect', () => process.exit(0))
}
