import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inject } from 'vitest'
import { type Printed, printedBy } from '../../../../test/support/printed.ts'
import type { Processes, Program, ProgramMessage } from '../../../../test/support/processes.ts'
import { newToken, type TokenEntry } from '../../src/index.ts'
import { runGateway } from '../../src/program/program.ts'

const GATEWAY = new URL('../../../../workers/gateway.ts', import.meta.url)
const START_TIMEOUT_MS = 60_000

/** A queue that takes anything. */
export const ANY = { schema: true } as const

/** Writes something as JSON into a new file, which is there until the end of the run. @returns the path */
export function jsonFile(name: string, content: unknown): string {
  const file = join(mkdtempSync(join(inject('runFolder'), 'gateway-')), name)
  writeFileSync(file, JSON.stringify(content), { mode: 0o600 })
  return file
}

/** Tokens by name, and the file of their entries. */
export function tokenFile<N extends string>(terms: Readonly<Record<N, Omit<TokenEntry, 'name' | 'sha256'>>>) {
  const made = Object.entries(terms).map(([name, more]) => ({ ...newToken(name), more: more as object }))
  const file = jsonFile(
    'tokens.json',
    made.map(({ entry, more }) => ({ ...entry, ...more })),
  )
  const tokens = Object.fromEntries(made.map(({ token, entry }) => [entry.name, token])) as Record<N, string>
  return { file, tokens }
}

/** A gateway that listens. */
export interface RunningGateway {
  readonly program: Program<ProgramMessage>
  readonly url: string
}

/** For so long it waits for Redis, unless a test says otherwise: a busy machine may take longer than the default. */
const PATIENCE_MS = 20_000

function patient(redisUrl: string): string {
  const url = new URL(redisUrl)
  if (!url.searchParams.has('commandTimeout')) url.searchParams.set('commandTimeout', `${PATIENCE_MS}`)
  return url.href
}

/** Runs the gateway in this process as far as to its end: for what ends it before it listens. */
export function runHere(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Printed> {
  return printedBy(() => runGateway(args, { ...process.env, ...env }))
}

/** Starts the gateway program on a free port, and waits until it listens. */
export async function startGateway(
  processes: Processes,
  config: object,
  env: Record<string, string>,
  script: URL = GATEWAY,
): Promise<RunningGateway> {
  const program = processes.fork(script, {
    env: {
      ...{
        PORT: '0',
        LOG_LEVEL: 'debug',
        CONFIG: jsonFile('gateway.json', { redisTimeoutMs: PATIENCE_MS, ...config }),
      },
      ...{ ...env, ...(env.REDIS_URL && { REDIS_URL: patient(env.REDIS_URL) }) },
    },
  })
  const port = await readyPort(program)
  return { program, url: `http://127.0.0.1:${port}` }
}

/** The port in the line that says that it is ready. */
async function readyPort(program: Program<ProgramMessage>): Promise<number> {
  const deadline = performance.now() + START_TIMEOUT_MS
  let ended = false
  void program.exited.then(() => {
    ended = true
  })
  for (;;) {
    const line = program.output.split('\n').find((one) => one.includes('"msg":"ready"'))
    if (line) return (JSON.parse(line) as { port: number }).port
    if (ended || performance.now() > deadline) throw new Error(`the gateway did not start:\n${program.output}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

/** Posts a job. */
export function post(
  url: string,
  queue: string,
  data: unknown,
  headers: Record<string, string> = {},
): Promise<Response> {
  return fetch(`${url}/queues/${queue}/jobs`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ data }),
  })
}
