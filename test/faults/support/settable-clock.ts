import { execFileSync } from 'node:child_process'
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** A wall clock that a server is given, and that a test sets. */
export interface SettableClock {
  /** For the server's environment. */
  readonly env: NodeJS.ProcessEnv
  /** From now on the server's clock is off by so many milliseconds. */
  set(offsetMs: number): void
  remove(): void
}

/** Why a server's clock can not be set on this machine, or undefined where it can. */
export function whyNoClock(): string | undefined {
  if (process.platform !== 'linux') return 'a server of this platform can not be given a clock of its own'
  try {
    execFileSync('gcc', ['--version'], { stdio: 'ignore' })
    return undefined
  } catch {
    return 'gcc is not installed, which builds the clock that the server is given'
  }
}

/** Builds the clock in a temporary folder. */
export function buildClock(): SettableClock {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-clock-'))
  const library = join(folder, 'set-clock.so')
  const file = join(folder, 'offset-ms')
  const source = fileURLToPath(new URL('./set-clock.c', import.meta.url))
  execFileSync('gcc', ['-shared', '-fPIC', '-O2', '-o', library, source])
  const set = (offsetMs: number) => {
    // The server must never read half a number.
    writeFileSync(`${file}.new`, String(offsetMs))
    renameSync(`${file}.new`, file)
  }
  set(0)
  return {
    env: { LD_PRELOAD: library, CLOCK_OFFSET_FILE: file },
    set,
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
}
