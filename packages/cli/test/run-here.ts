import { printedBy } from '../../../test/support/printed.ts'
import type { TestRedis } from '../../../test/support/redis.ts'
import { runCommandLine } from '../src/program.ts'
import type { Ended } from './sluice-process.ts'

/** Runs the command line in this process, which is quicker, with the Redis and the prefix of a test file. */
export async function runHere({ url, prefix }: TestRedis, args: readonly string[]): Promise<Ended> {
  const command = [...args, '--redis-url', url, '--prefix', prefix, '--by', 'tester']
  const { code, stdout, stderr } = await printedBy(() => runCommandLine(command))
  return { code, stdout, stderr }
}

/** The same with `--json`: what it printed. Fails if it did not end with 0. */
// biome-ignore lint/suspicious/noExplicitAny: tests look at what they expect
export async function jsonHere(redis: TestRedis, args: readonly string[]): Promise<any> {
  const { code, stdout, stderr } = await runHere(redis, [...args, '--json'])
  if (code !== 0) throw new Error(`sluice ${args.join(' ')} ended with ${code}: ${stderr}`)
  return JSON.parse(stdout)
}
