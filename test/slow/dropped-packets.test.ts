import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test } from 'vitest'

/** How often all connections fall silent; DROP_ROUNDS. */
const ROUNDS = Number(process.env.DROP_ROUNDS ?? 4)
const PROMISED_MS = 15_000
/** A network of its own, for whoever may have one. */
const NETWORK = process.getuid?.() === 0 ? ['--net'] : ['--net', '--user', '--map-root-user']
const whyNot =
  spawnSync('unshare', [...NETWORK, 'iptables', '-L', '-n']).status === 0 ? '' : ' (needs unshare and iptables)'

test.skipIf(whyNot)(
  `packets of all connections are dropped, ${ROUNDS} times: nothing stands still for longer than 15 s${whyNot}`,
  async () => {
    const script = fileURLToPath(new URL('./programs/dropped-packets.ts', import.meta.url))
    const command = [...NETWORK, process.execPath, '--import', 'tsx', script, String(ROUNDS)]
    const program = spawn('unshare', command, { stdio: ['ignore', 'pipe', 'inherit'] })
    onTestFinished(() => void program.kill('SIGKILL'))
    const exited = once(program, 'exit')
    const found: Record<string, number>[] = []
    for await (const line of createInterface(program.stdout)) {
      if (!line.startsWith('{')) continue
      process.stdout.write(`${line}\n`)
      found.push(JSON.parse(line))
    }
    expect(await exited).toEqual([0, null])
    expect(found).toHaveLength(ROUNDS)
    for (const { connections: _, ...standstills } of found) {
      for (const [user, ms] of Object.entries(standstills)) expect(ms, user).toBeLessThanOrEqual(PROMISED_MS)
    }
  },
  ROUNDS * 120_000,
)
