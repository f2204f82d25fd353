import type { Redis } from 'ioredis'

export type Unanswered = (args: readonly unknown[]) => Promise<never>

const closed: Unanswered = async () => {
  throw new Error('Connection is closed.')
}

export interface FakeCluster {
  readonly unanswered: Unanswered
  readonly scaleReads: 'master' | 'slave'
  /** As far as they are asked one by one. */
  readonly nodes: readonly unknown[]
}

/** A client as of a cluster, whose commands on keys that begin with one of the texts are not answered. */
export function fakeCluster(
  real: Redis,
  away: ReadonlySet<string>,
  { unanswered = closed, scaleReads = 'master', nodes = [] }: Partial<FakeCluster> = {},
) {
  const times: unknown[] = []
  const slots: string[][] = []
  const check = async (args: readonly unknown[]) => {
    if (args.some((arg) => [...away].some((text) => String(arg).startsWith(text)))) await unanswered(args)
  }
  const call = async (...args: [string, ...string[]]) => {
    if (args[0] === 'time') times.push(args)
    await check(args)
    return real.call(...args)
  }
  const pipeline = () => {
    const made = real.pipeline()
    const sent: unknown[] = []
    const send = made.call.bind(made) as (...args: unknown[]) => unknown
    made.call = ((...args: unknown[]) => {
      sent.push(...args)
      return send(...args)
    }) as never
    const exec = made.exec.bind(made)
    made.exec = async () => {
      await check(sent)
      return exec()
    }
    return made
  }
  const fake = { isCluster: true, options: { scaleReads }, slots, nodes: () => nodes, call, pipeline }
  const client = new Proxy(real, { get: (on, key) => Reflect.get(key in fake ? fake : on, key) })
  return { client, times, slots }
}
