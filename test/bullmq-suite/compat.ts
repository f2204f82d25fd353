import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Command } from 'commander'
import { startRedis } from '../../workers/services/redis.ts'
import type { ProbeResult } from './compat-probe.ts'

const PROJECT_DIR = fileURLToPath(new URL('../..', import.meta.url))
const CACHE_DIR = join(PROJECT_DIR, '.cache/compat')
/** What the probe is made of: it is copied beside the version that it tries, so that every import finds that one. */
const PROBE_FILES = [
  'src',
  'lua',
  ...['probe', 'scenario', 'keys'].map((part) => `test/bullmq-suite/compat-${part}.ts`),
]
const PROBE_TIMEOUT_MS = 60_000

const run = promisify(execFile)

const program = new Command('compat')
  .description(
    'Tries the library with another version of BullMQ: installs it into .cache/compat, checks its scripts as every ' +
      'start does, and runs the composed scripts on scratch queues beside the stock ones.',
  )
  .argument('<bullmq>', 'as npm takes it: bullmq@6.7.0, bullmq@latest')
  .argument('[others...]', 'more packages beside it; ioredis in the version used here unless one is named: ioredis@5')
  .addHelpText(
    'after',
    `
Prints known (its scripts were tested), unknown (other texts of the known layout) or refused (another layout), and what
is not as with stock. Exit code: 0 if the library works with it, 1 if it is refused or differs, 2 if the try failed.`,
  )

/** @returns the folder that holds the packages and a copy of the library */
async function install(packages: readonly string[]): Promise<string> {
  const dir = join(CACHE_DIR, packages.join('+').replace(/[^\w.@+-]/g, '_'))
  rmSync(dir, { recursive: true, force: true })
  mkdirSync(dir, { recursive: true })
  writeFileSync(join(dir, 'package.json'), '{ "private": true, "type": "module" }\n')
  const args = ['install', '--prefix', dir, '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel', 'error']
  await run('npm', [...args, ...packages], { cwd: dir, shell: process.platform === 'win32' })
  for (const file of PROBE_FILES) cpSync(join(PROJECT_DIR, file), join(dir, file), { recursive: true })
  return dir
}

/** BullMQ leaves the choice of ioredis to the program. */
function withIoredis(packages: readonly string[]): readonly string[] {
  if (packages.some((name) => name.startsWith('ioredis@'))) return packages
  const { devDependencies } = JSON.parse(readFileSync(join(PROJECT_DIR, 'package.json'), 'utf8')) as {
    devDependencies: Record<string, string>
  }
  return [...packages, `ioredis@${devDependencies.ioredis}`]
}

function installedVersion(dir: string, name: string): string {
  const manifest = readFileSync(join(dir, 'node_modules', name, 'package.json'), 'utf8')
  return (JSON.parse(manifest) as { version: string }).version
}

async function probe(dir: string): Promise<ProbeResult> {
  const redis = await startRedis({ ignoreGiven: true, allowEmulator: false, persistence: 'none' })
  try {
    const args = ['--import', 'tsx', join(dir, 'test/bullmq-suite/compat-probe.ts'), redis.url]
    // As texts, Redis says which scripts have run.
    const env = { ...process.env, SLUICE_FUNCTIONS: 'never' }
    const { stdout } = await run(process.execPath, args, { cwd: PROJECT_DIR, timeout: PROBE_TIMEOUT_MS, env })
    return JSON.parse(stdout.trim().split('\n').at(-1) as string) as ProbeResult
  } finally {
    await redis.stop()
  }
}

async function main(packages: readonly string[]): Promise<number> {
  const dir = await install(withIoredis(packages))
  console.log(`bullmq ${installedVersion(dir, 'bullmq')}, ioredis ${installedVersion(dir, 'ioredis')}`)
  const { verdict, message, faults } = await probe(dir)
  console.log(message ? `${verdict}: ${message}` : verdict)
  for (const fault of faults) console.log(`  differs  ${fault}`)
  if (verdict !== 'refused' && faults.length === 0) console.log('every composed script does what the stock one does')
  return verdict === 'refused' || faults.length > 0 ? 1 : 0
}

try {
  process.exitCode = await main(program.parse().args)
} catch (error) {
  const { stderr, message } = error as Error & { stderr?: string }
  console.error(stderr || message)
  process.exitCode = 2
}
