import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { holdLifeline, killCommand, onExit } from './exit-hook.ts'
import { findFreePort } from './free-port.ts'
import { probeRedis } from './redis-probe.ts'
import { type RedisKind, type RedisService, type StartRedisOptions, serverArguments } from './redis-service.ts'

const START_TIMEOUT_MS = 20_000
const STOP_TIMEOUT_MS = 5_000
const HOST = '127.0.0.1'

/** Starts `binary` on loopback and resolves when it answers PING. `origin` completes the line that names the server. */
export async function runRedisProcess(
  binary: string,
  kind: RedisKind,
  origin: string,
  options: StartRedisOptions,
): Promise<RedisService> {
  const ownDir = options.dir === undefined ? mkdtempSync(join(tmpdir(), 'sluice-redis-')) : undefined
  if (options.dir !== undefined) await mkdir(options.dir, { recursive: true })
  const dir = ownDir ?? options.dir!
  for (let attempt = 1; ; attempt++) {
    const port = options.port ?? (await findFreePort(isClusterNode(options) ? 'cluster node' : undefined))
    const server = new RedisProcess({ binary, kind, origin, dir, ownDir, port, options })
    try {
      await server.start()
      return server
    } catch (error) {
      await server.abandon()
      // Another process took the port between the check and the bind.
      const taken = options.port === undefined && /Address already in use/.test(String(error))
      if (!taken || attempt === 5) {
        if (ownDir) rmSync(ownDir, { recursive: true, force: true })
        throw error
      }
    }
  }
}

function isClusterNode({ args = [] }: StartRedisOptions): boolean {
  return args.includes('--cluster-enabled')
}

interface RedisProcessSettings {
  binary: string
  kind: RedisKind
  origin: string
  dir: string
  /** The folder to remove on stop, when it is ours. */
  ownDir: string | undefined
  port: number
  options: StartRedisOptions
}

/**
 * One server process. `child` is set while it runs; `release` removes the exit hook and the lifeline, which
 * would kill it when this process ends first.
 */
class RedisProcess implements RedisService {
  readonly host = HOST
  readonly port: number
  readonly url: string
  readonly kind: RedisKind
  source: string
  readonly #settings: RedisProcessSettings
  #child: ChildProcess | undefined
  #release: () => void = () => {}
  #log = ''

  constructor(settings: RedisProcessSettings) {
    this.#settings = settings
    this.port = settings.port
    this.kind = settings.kind
    this.url = `redis://${HOST}:${settings.port}`
    this.source = settings.origin
  }

  get pid(): number | undefined {
    return this.#child?.pid
  }

  async start(): Promise<void> {
    const { binary, dir, options } = this.#settings
    const file = options.configFile === undefined ? [] : [options.configFile]
    const args = [...file, '--bind', HOST, '--port', String(this.port), '--dir', dir, ...serverArguments(options)]
    const [command = binary, ...itsArgs] = [...(options.launcher ?? []), binary, ...args]
    this.#log = ''
    // A session of its own: Ctrl-C in a terminal reaches this process only, and it decides when its Redis ends.
    const child = spawn(command, itsArgs, {
      env: { ...process.env, ...options.env },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    })
    this.#watch(child)
    await this.#ready(child)
    child.unref()
  }

  #watch(child: ChildProcess): void {
    const keepLog = (chunk: Buffer) => {
      this.#log = (this.#log + chunk.toString()).slice(-4000)
    }
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', keepLog)
      // The pipes must not keep a finished program alive.
      ;(stream as unknown as { unref?: () => void } | null)?.unref?.()
    }
    child.on('error', (error) => keepLog(Buffer.from(String(error))))
    child.once('exit', () => this.#gone(child))
    if (child.pid === undefined) return
    this.#child = child
    const { ownDir } = this.#settings
    const cutLifeline = holdLifeline(killCommand(child.pid, 'KILL', ownDir))
    const forgetExit = onExit(() => {
      child.kill('SIGKILL')
      if (ownDir) rmSync(ownDir, { recursive: true, force: true })
    })
    this.#release = () => {
      cutLifeline()
      forgetExit()
    }
  }

  #gone(child: ChildProcess): void {
    if (this.#child !== child) return
    this.#child = undefined
    this.#release()
  }

  async #ready(child: ChildProcess): Promise<void> {
    const deadline = Date.now() + START_TIMEOUT_MS
    for (;;) {
      const identity = await probeRedis(HOST, this.port)
      if (identity && identity.pid === child.pid) {
        this.source = `${identity.version}, ${this.#settings.origin}`
        return
      }
      if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) {
        throw new Error(`${this.#settings.binary} ended before it was ready: ${lastLines(this.#log)}`)
      }
      if (Date.now() > deadline) {
        throw new Error(`${this.#settings.binary} gave no PONG within ${START_TIMEOUT_MS} ms: ${lastLines(this.#log)}`)
      }
      await delay(5)
    }
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child
    if (!child) return
    child.ref()
    const exited = once(child, 'exit')
    child.kill(signal)
    await exited
  }

  async #terminate(): Promise<void> {
    const child = this.#child
    if (!child) return
    const force = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
    // A frozen server could not act on SIGTERM.
    child.kill('SIGCONT')
    await this.kill('SIGTERM')
    clearTimeout(force)
  }

  async restart(): Promise<void> {
    await this.#terminate()
    await this.start()
  }

  async abandon(): Promise<void> {
    await this.kill()
  }

  async stop(): Promise<void> {
    const { ownDir } = this.#settings
    if (ownDir) {
      await this.kill()
      rmSync(ownDir, { recursive: true, force: true })
    } else {
      await this.#terminate()
    }
  }
}

function lastLines(log: string): string {
  return log.trim().split('\n').slice(-3).join(' / ') || 'it printed nothing'
}
