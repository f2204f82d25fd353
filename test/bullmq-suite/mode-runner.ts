import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'
import type { InstalledBullmq } from './installed-bullmq.ts'
import type { FileOutcome, Mode } from './outcome.ts'
import { runFile } from './run-file.ts'
import type { Stage } from './stage.ts'

const SHAPED_WORKER = fileURLToPath(new URL('./shaped-worker.ts', import.meta.url))
const SHAPED_BACKEND = fileURLToPath(new URL('./shaped-backend.ts', import.meta.url))

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
}

/** Matches exactly these tests by the name vitest gives them: titles joined by spaces. */
function namePattern(only: readonly (readonly string[])[]): string {
  return `^(?:${only.map((titles) => escapePattern(titles.join(' '))).join('|')})$`
}

/** Runs files in one mode, against a Redis of its own that is empty at the start of each file. */
export class ModeRunner {
  readonly mode: Mode
  readonly #stage: Stage
  readonly #bullmq: InstalledBullmq
  readonly #logDir: string
  readonly #redis: RedisService

  private constructor(mode: Mode, stage: Stage, bullmq: InstalledBullmq, logDir: string, redis: RedisService) {
    this.mode = mode
    this.#stage = stage
    this.#bullmq = bullmq
    this.#logDir = logDir
    this.#redis = redis
  }

  /** Starts the Redis: never one that was given, because it is emptied, and never the emulator. */
  static async start(mode: Mode, stage: Stage, bullmq: InstalledBullmq, logDir: string): Promise<ModeRunner> {
    const redis = await startRedis({ ignoreGiven: true, allowEmulator: false, persistence: 'none' })
    const modeLogDir = join(logDir, mode)
    mkdirSync(modeLogDir, { recursive: true })
    return new ModeRunner(mode, stage, bullmq, modeLogDir, redis)
  }

  get redisSource(): string {
    return this.#redis.source
  }

  async run(file: string, signal: AbortSignal, only?: readonly (readonly string[])[]): Promise<FileOutcome> {
    await this.#emptyRedis()
    return runFile({
      settings: {
        ...this.#bullmq,
        mode: this.mode,
        stageDir: this.#stage.dir,
        shapedBackend: SHAPED_BACKEND,
        shapedWorker: SHAPED_WORKER,
        testFile: `tests/${file}`,
        setupFiles: this.#stage.setupFiles,
        ...(only ? { namePattern: namePattern(only) } : {}),
      },
      redisPort: this.#redis.port,
      logFile: join(this.#logDir, `${file.replaceAll('/', '-')}.log`),
      signal,
    })
  }

  async stop(): Promise<void> {
    await this.#redis.stop()
  }

  /** Each file finds what the first one found: neither keys nor cached scripts. */
  async #emptyRedis(): Promise<void> {
    const client = new Redis(this.#redis.url)
    try {
      await client.flushall()
      await client.script('FLUSH')
    } finally {
      client.disconnect()
    }
  }
}
