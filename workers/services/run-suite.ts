import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const projectRoot = fileURLToPath(new URL('../../', import.meta.url))

/** Runs the test suite in a process of its own, its output on this terminal; resolves to its exit code. */
export async function runSuite(env: NodeJS.ProcessEnv, args: readonly string[]): Promise<number> {
  const vitest = fileURLToPath(new URL('../../node_modules/vitest/vitest.mjs', import.meta.url))
  const child = spawn(process.execPath, [vitest, 'run', ...args], { cwd: projectRoot, env, stdio: 'inherit' })
  const [code] = (await once(child, 'exit')) as [number | null]
  return code ?? 1
}
