import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { holdLifeline } from '../../workers/services/exit-hook.ts'
import { findProgram } from '../../workers/services/find-program.ts'
import { startRedis } from '../../workers/services/redis.ts'
import type { RedisService } from '../../workers/services/redis-service.ts'
import { runCommand } from '../../workers/services/run-command.ts'

/** What Redis does by itself is 0.1 million instructions a second then. */
const SELDOM = ['--hz', '1']

/** A Redis whose instructions are counted by Valgrind, under which it runs about fifty times slower. */
export class CountedRedis {
  readonly redis: RedisService
  readonly #folder: string
  /** Removes the folder if this process is ended. */
  readonly #cutLifeline: () => void

  private constructor(redis: RedisService, folder: string) {
    this.redis = redis
    this.#folder = folder
    this.#cutLifeline = holdLifeline(['rm', '-rf', folder])
  }

  /** @returns why instructions cannot be counted here, if they cannot */
  static async start(): Promise<CountedRedis | string> {
    if (!findProgram(['valgrind'], process.env)) return 'valgrind is not on PATH'
    const folder = await mkdtemp(join(tmpdir(), 'sluice-counted-'))
    const files = [`--callgrind-out-file=${join(folder, 'callgrind.%p')}`, `--vgdb-prefix=${join(folder, 'vgdb')}`]
    const launcher = ['valgrind', '--tool=callgrind', '--trace-children=yes', ...files]
    const redis = await startRedis({ ignoreGiven: true, dir: join(folder, 'redis'), launcher, args: SELDOM })
    const counted = new CountedRedis(redis, folder)
    if (redis.pid !== undefined) return counted
    await counted.stop()
    return `valgrind cannot run a Redis that is ${redis.source}`
  }

  /** How many it has executed since its start, in all of its threads. */
  async instructions(): Promise<number> {
    const prefix = `--vgdb-prefix=${join(this.#folder, 'vgdb')}`
    const printed = await runCommand('callgrind_control', [prefix, '-e', 'Ir', String(this.redis.pid)])
    const threads = [...printed.matchAll(/^ *Th \d+ +([\d,]+)/gm)]
    if (threads.length === 0)
      throw new Error(`expected the instructions of each thread, callgrind_control printed ${printed}`)
    return threads.reduce((sum, [, count = '']) => sum + Number(count.replaceAll(',', '')), 0)
  }

  async stop(): Promise<void> {
    await this.redis.kill()
    await this.redis.stop()
    await rm(this.#folder, { recursive: true, force: true })
    this.#cutLifeline()
  }
}
