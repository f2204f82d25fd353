import { readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { Redis } from 'ioredis'
import type { Reporter, TestModule, Vitest } from 'vitest/node'
import { BaseSequencer, createVitest } from 'vitest/node'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'

/** How much longer than without a mutant a test file may take. */
const TIMES_LONGER = 4
const MORE_MS = 30_000

/** The order is that of `run`. */
class AsGiven extends BaseSequencer {
  override async sort(files: Parameters<BaseSequencer['sort']>[0]) {
    return files
  }
}

/** The tests of a copy of the project, whose files change from one run to the next. Vitest and Redis stay. */
export class Suite implements Reporter {
  readonly #root: string
  readonly #redis: RedisService
  #vitest: Vitest | undefined
  /** How long each file took at most when it passed. */
  readonly #tookMs = new Map<string, number>()
  readonly #kills = new Map<string, number>()
  #timer: NodeJS.Timeout | undefined
  #hung: string | undefined

  private constructor(root: string, redis: RedisService) {
    this.#root = root
    this.#redis = redis
  }

  static async start(root: string): Promise<Suite> {
    const redis = await startRedis({ ignoreGiven: true })
    process.env.REDIS_URL = redis.url
    const suite = new Suite(root, redis)
    const options = {
      root,
      mode: 'quick',
      watch: false,
      bail: 1,
      maxWorkers: 1,
      reporters: [suite],
      silent: true,
      cache: false as const,
      // What a mutant leaves waiting for ever fails sooner than in a run that has to pass.
      testTimeout: 60_000,
      expect: { poll: { timeout: 20_000 } },
    }
    const setupFiles = [join(root, 'test/mutation/load-library.ts')]
    suite.#vitest = await createVitest('test', { ...options, setupFiles, sequence: { sequencer: AsGiven } })
    return suite
  }

  async files(folders: readonly string[]): Promise<string[]> {
    if (folders.length === 0) return []
    const found = await this.#running.globTestSpecifications(folders.map((it) => join(this.#root, it)))
    return found.map(({ moduleId }) => relative(this.#root, moduleId))
  }

  /** Those that notice most per second come first. */
  #ordered(files: readonly string[]): string[] {
    const worth = (file: string) => ((this.#kills.get(file) ?? 0) + 0.1) / ((this.#tookMs.get(file) ?? 1000) + 200)
    return files.toSorted((one, other) => worth(other) - worth(one))
  }

  /**
   * @returns the test file that failed or took too long
   */
  async run(files: readonly string[]): Promise<string | undefined> {
    if (files.length === 0) return undefined
    const vitest = this.#running
    await this.#emptyRedis()
    // What failed in a run before counts for `bail`.
    vitest.state.idMap.clear()
    vitest.state.filesMap.clear()
    this.#hung = undefined
    const paths = this.#ordered(files).map((file) => join(this.#root, file))
    const specifications = paths.map((path) => vitest.getRootProject().createSpecification(path))
    this.#watch(paths[0] as string)
    const { testModules, unhandledErrors } = await vitest.runTestSpecifications(specifications)
    clearTimeout(this.#timer)
    // One whose tests run beside each other is left as pending where the first of them fails.
    const failed = ['failed', 'pending'].map((state) => testModules.find((it) => it.state() === state)).find(Boolean)
    const killer = this.#hung ?? (failed && this.#fileOf(failed)) ?? (unhandledErrors.length > 0 ? files[0] : undefined)
    if (killer) this.#kills.set(killer, (this.#kills.get(killer) ?? 0) + 1)
    return killer
  }

  /** @returns what the file contained */
  write(file: string, text: string): string {
    const path = join(this.#root, file)
    const before = readFileSync(path, 'utf8')
    writeFileSync(path, text)
    this.#running.invalidateFile(path)
    return before
  }

  onTestModuleStart(module: TestModule): void {
    this.#watch(module.moduleId)
  }

  onTestModuleEnd(module: TestModule): void {
    const file = this.#fileOf(module)
    const { duration } = module.diagnostic()
    if (module.state() === 'passed') this.#tookMs.set(file, Math.max(duration, this.#tookMs.get(file) ?? 0))
  }

  async stop(): Promise<void> {
    await this.#vitest?.close()
    await this.#redis.stop()
  }

  get #running(): Vitest {
    if (!this.#vitest) throw new Error('expected a vitest that was started')
    return this.#vitest
  }

  #fileOf({ moduleId }: { readonly moduleId: string }): string {
    return relative(this.#root, moduleId)
  }

  #watch(path: string): void {
    clearTimeout(this.#timer)
    const file = relative(this.#root, path)
    const limitMs = MORE_MS + TIMES_LONGER * (this.#tookMs.get(file) ?? 120_000)
    this.#timer = setTimeout(() => void this.#end(file), limitMs)
  }

  /** A script may run for ever, and then Redis hears nothing; so may a worker's process. */
  async #end(file: string): Promise<void> {
    this.#hung = file
    await this.#redis.kill()
    await this.#redis.restart()
    void this.#running.cancelCurrentRun('test-failure')
    // The second one kills the process.
    this.#timer = setTimeout(() => void this.#running.cancelCurrentRun('test-failure'), 5000)
  }

  /** A mutant leaves its library, and a failed test its keys. */
  async #emptyRedis(): Promise<void> {
    const client = new Redis(this.#redis.url)
    await client.flushall()
    await client.call('FUNCTION', 'FLUSH')
    await client.script('FLUSH')
    client.disconnect()
  }
}
