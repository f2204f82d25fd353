import { spawn } from 'node:child_process'
import { closeSync, existsSync, openSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { FileOutcome } from './outcome.ts'
import type { Report } from './outcome-reporter.ts'
import { RUN_SETTINGS_VARIABLE, type RunSettings } from './run-settings.ts'

/** BullMQ's slowest files take about two minutes: what runs this long hangs. */
const FILE_TIMEOUT_MS = 15 * 60_000

const SUITE_DIR = import.meta.dirname
const VITEST = join(dirname(createRequire(import.meta.url).resolve('vitest/package.json')), 'vitest.mjs')

export interface FileRun {
  settings: Omit<RunSettings, 'reportFile'>
  redisPort: number
  /** Receives what the processes print. */
  logFile: string
  signal: AbortSignal
}

function environment(settings: RunSettings, redisPort: number): NodeJS.ProcessEnv {
  const preload = `--require ${JSON.stringify(join(SUITE_DIR, 'redirect-redis-port.cjs'))}`
  const env: NodeJS.ProcessEnv = { ...process.env }
  // The tests read these themselves; they must see neither a Redis of the user's nor a port to compare with.
  for (const name of ['REDIS_HOST', 'REDIS_PORT', 'REDIS_URL', 'BULLMQ_TEST_PREFIX', 'BULLMQ_TEST_BACKEND', 'CI']) {
    delete env[name]
  }
  return {
    ...env,
    REDIS_HOST: '127.0.0.1',
    NODE_OPTIONS: [process.env.NODE_OPTIONS, preload].filter(Boolean).join(' '),
    BULLMQ_SUITE_REDIS_PORT: String(redisPort),
    [RUN_SETTINGS_VARIABLE]: JSON.stringify(settings),
  }
}

/** Ends everything a run started: forked processors outlive the tests that start them, and a hung run as well. */
function killGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // The whole group has ended by itself.
  }
}

function runVitest(run: FileRun, settings: RunSettings): Promise<string | undefined> {
  const log = openSync(run.logFile, 'a')
  const args = [VITEST, 'run', '--config', join(SUITE_DIR, 'vitest.config.ts'), '--root', settings.stageDir]
  return new Promise((resolve, reject) => {
    // A group of its own, so that killGroup reaches the processes that the tests fork.
    const child = spawn(process.execPath, args, {
      cwd: settings.stageDir,
      env: environment(settings, run.redisPort),
      stdio: ['ignore', log, log],
      detached: true,
    })
    let ending: string | undefined
    const end = (reason: string) => {
      ending = reason
      killGroup(child.pid)
    }
    const timer = setTimeout(() => end(`ended after ${FILE_TIMEOUT_MS / 60_000} minutes`), FILE_TIMEOUT_MS)
    const onAbort = () => end('interrupted')
    run.signal.addEventListener('abort', onAbort, { once: true })
    child.once('error', reject)
    child.once('exit', (code, signal) => {
      clearTimeout(timer)
      run.signal.removeEventListener('abort', onAbort)
      closeSync(log)
      killGroup(child.pid)
      resolve(
        ending ??
          (signal ? `vitest was ended by ${signal}` : code && code > 1 ? `vitest exited with ${code}` : undefined),
      )
    })
  })
}

/**
 * Runs one test file in a process of its own and returns the outcome of each test.
 * @throws {Error} if the run was interrupted
 */
export async function runFile(run: FileRun): Promise<FileOutcome> {
  const reportFile = `${run.logFile}.json`
  const startedAtMs = performance.now()
  const ending = await runVitest(run, { ...run.settings, reportFile })
  run.signal.throwIfAborted()
  const file = run.settings.testFile.replace(/^tests\//, '')
  const durationMs = Math.round(performance.now() - startedAtMs)
  if (!existsSync(reportFile)) {
    return { file, durationMs, tests: [], problems: [`${ending ?? 'no outcome was written'}; see ${run.logFile}`] }
  }
  const { tests, problems } = JSON.parse(readFileSync(reportFile, 'utf8')) as Report
  rmSync(reportFile)
  return { file, durationMs, tests, problems: ending ? [...problems, ending] : problems }
}
