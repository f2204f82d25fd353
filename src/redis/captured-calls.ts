import type { Argument } from '../redis/commands.ts'

export interface ScriptCall {
  readonly script: string
  readonly args: Argument[]
}

/** Mimics a client: keeps the script calls of BullMQ's own code instead of sending them. */
export class CallCollector {
  readonly calls: ScriptCall[] = []

  /** Replaces a backend's `execCommand`. */
  keep(script: string, args: Argument[]): number {
    this.calls.push({ script, args })
    return 0
  }
}

/** The arguments with which a method of BullMQ's backend would call its script, captured by a copy of the backend. */
export async function argumentsOf<B extends object>(
  backend: B,
  method: (this: B) => Promise<unknown>,
): Promise<Argument[]> {
  const collector = new CallCollector()
  const execCommand = (_client: unknown, script: string, args: Argument[]) => collector.keep(script, args)
  await method.call(Object.create(backend, { execCommand: { value: execCommand } }))
  return (collector.calls[0] as { args: Argument[] }).args
}
