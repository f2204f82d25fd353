import type { Argument } from './commands.ts'

/** A copy of BullMQ's backend, whose code keeps the calls of scripts instead of sending them. */
export function keepingCalls<B extends object>(backend: B, keep: (script: string, args: Argument[]) => void): B {
  const value = (_client: unknown, script: string, args: Argument[]): number => {
    keep(script, args)
    return 0
  }
  return Object.create(backend, { execCommand: { value } })
}

/** The arguments with which a method of BullMQ's backend would call its script. */
export async function argumentsOf<B extends object>(
  backend: B,
  method: (this: B) => Promise<unknown>,
): Promise<Argument[]> {
  let sent: Argument[] = []
  const copy = keepingCalls(backend, (_script, args) => {
    sent = args
  })
  await method.call(copy)
  return sent
}
