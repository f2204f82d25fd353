import type { Bench } from '../figure.ts'
import type { Remote } from '../fleet/remote.ts'
import { redisCpuUs, scriptUsage } from '../measure/redis-usage.ts'
import { type CallOptions, type Calls, callServer } from './caller.ts'
import type { ServerMethods, ServerSpec } from './protocol.ts'

const SERVER = new URL('server.ts', import.meta.url)

/** The mean cost of a call. */
export interface ServerCost extends Calls {
  /** CPU of the server's process. */
  readonly processUs: number
  /** CPU of the whole Redis server. */
  readonly redisUs: number
  readonly scripts: number
}

export class ServerProcess {
  readonly process: Remote<ServerMethods>
  readonly #bench: Bench
  readonly url: string

  private constructor(bench: Bench, process: Remote<ServerMethods>, url: string) {
    this.#bench = bench
    this.process = process
    this.url = url
  }

  static async start(bench: Bench, spec: Omit<ServerSpec, 'redis'>): Promise<ServerProcess> {
    const process = bench.fleet.start<ServerMethods>(SERVER, ['--expose-gc'])
    const url = await process.call('open', { ...spec, redis: bench.redis })
    return new ServerProcess(bench, process, url)
  }

  async call(path: string, options: Omit<CallOptions, 'url'>): Promise<ServerCost> {
    const { client } = this.#bench
    const before = {
      cpu: await this.process.call('cpuUs'),
      redis: await redisCpuUs(client),
      ...(await scriptUsage(client)),
    }
    const calls = await callServer({ ...options, url: `${this.url}${path}` })
    const answered = calls.ok + calls.refused + calls.other
    const after = await scriptUsage(client)
    return {
      ...calls,
      processUs: ((await this.process.call('cpuUs')) - before.cpu) / answered,
      redisUs: ((await redisCpuUs(client)) - before.redis) / answered,
      scripts: (after.calls - before.calls) / answered,
    }
  }

  async stop(): Promise<void> {
    await this.process.call('close')
    await this.process.stop()
  }
}
