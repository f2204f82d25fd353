import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const execFileAsync = promisify(execFile)

/** How a command is run; `timeoutMs` defaults to two minutes. */
export interface CommandOptions {
  cwd?: string
  env?: NodeJS.ProcessEnv
  uid?: number
  gid?: number
  timeoutMs?: number
  /** Return what it wrote to stderr as well, after its stdout. Default false. */
  withStderr?: boolean
}

/** Runs a program to its end and returns what it printed. Rejects with its last lines of stderr when it fails. */
export async function runCommand(file: string, args: readonly string[], options: CommandOptions = {}): Promise<string> {
  const { timeoutMs = 120_000, withStderr = false, ...rest } = options
  try {
    const { stdout, stderr } = await execFileAsync(file, args, {
      ...rest,
      timeout: timeoutMs,
      maxBuffer: 64 * 1024 * 1024,
    })
    return withStderr ? stdout + stderr : stdout
  } catch (error) {
    const { stderr = '', message } = error as { stderr?: string; message: string }
    const reason = stderr.trim().split('\n').slice(-3).join(' / ') || (message.split('\n')[0] ?? '')
    throw new Error(`${file} ${args[0] ?? ''} failed: ${reason}`, { cause: error })
  }
}
