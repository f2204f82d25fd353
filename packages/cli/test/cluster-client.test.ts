import { expect, test, vi } from 'vitest'
import { readGlobalOptions } from '../src/global-options.ts'
import { newProgram } from '../src/program.ts'
import { connectCluster } from '../src/redis-client.ts'

test('a cluster that was never reached fails soon; one that goes away later is looked for again', () => {
  const cluster = connectCluster('redis://127.0.0.1:1')
  cluster.on('error', () => {})
  const retry = (attempt: number) => cluster.options.clusterRetryStrategy?.(attempt)
  expect([retry(1), retry(4)]).toEqual([200, null])
  cluster.emit('ready')
  expect([retry(4), retry(1000)]).toEqual([800, 2000])
  cluster.disconnect()
})

test.each([
  ['', false],
  ['false', false],
  ['0', false],
  ['true', true],
  ['1', true],
])('REDIS_CLUSTER=%s', async (text, expected) => {
  vi.stubEnv('REDIS_CLUSTER', text)
  expect(await clusterOf([])).toBe(expected)
  expect(await clusterOf(['--cluster'])).toBe(true)
})

test('REDIS_CLUSTER with another text is wrong usage', async () => {
  vi.stubEnv('REDIS_CLUSTER', 'yes please')
  await expect(clusterOf([])).rejects.toThrow("REDIS_CLUSTER: expected 'true', 'false', '1' or '0'")
})

async function clusterOf(args: readonly string[]): Promise<boolean> {
  const program = newProgram()
  let found: boolean | undefined
  program.command('look').action(() => {
    found = readGlobalOptions(program.opts()).cluster
  })
  await program.parseAsync(['look', ...args], { from: 'user' })
  return found as boolean
}
