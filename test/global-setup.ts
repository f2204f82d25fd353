import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Redis } from 'ioredis'
import type { TestProject } from 'vitest/node'
import { loadLibrary } from '../src/redis/libraries.ts'
import { installedScripts } from '../src/redis/scripts.ts'
import { startRedis } from '../workers/services/redis.ts'

/** Programs that tests start as separate processes. */
const PROGRAMS = ['workers/*.ts', 'packages/cli/src/main.ts', '{test/*,packages/*/test}/**/programs/*.ts']

declare module 'vitest' {
  interface ProvidedContext {
    /** The Redis of this run, shared by all files; each keeps to its own prefix. */
    redisUrl: string
    /** For files that several tests share: removed at the end of the run. */
    runFolder: string
    /** Where the programs that tests start are compiled to. */
    programsFolder: string
  }
}

/** Starts one real Redis for the whole run. A key that is left in it at the end fails the run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { ensurePage } = await import(new URL('../workers/page.mjs', import.meta.url).href)
  await ensurePage()
  project.onTestsRerun(() => ensurePage())
  const service = await startRedis()
  process.stdout.write(`Tests run against ${service.source}\n`)
  project.provide('redisUrl', service.url)
  await loadFunctions(service.url)
  const folder = mkdtempSync(join(tmpdir(), 'sluice-tests-'))
  project.provide('runFolder', folder)
  const programsFolder = join(folder, 'programs')
  project.provide('programsFolder', programsFolder)
  // The tests that compute start no program, and compiling takes seconds.
  if (process.env.TEST_PART !== 'computing') await preparePrograms(programsFolder, project)
  // What test/package/built-package.ts built there is out of date.
  project.onTestsRerun(() => rmSync(join(folder, 'package'), { recursive: true, force: true }))
  return async () => {
    rmSync(folder, { recursive: true, force: true })
    try {
      // What else lives in a Redis that was given is none of our business.
      if (service.kind !== 'given') await assertEmpty(service.url)
    } finally {
      await service.stop()
    }
  }
}

/** Compiles the programs that tests start, again before each further run. */
async function preparePrograms(programsFolder: string, project: TestProject): Promise<void> {
  // The compiler alone takes a second to load.
  const { compilePrograms, linkPackages } = await import('../workers/services/compile-programs.ts')
  await linkPackages(dirname(programsFolder))
  const compile = () => compilePrograms(programsFolder, PROGRAMS, 'inside')
  await compile()
  project.onTestsRerun(compile)
}

/** As an operator would: no call of a test is the one that finds no library. */
async function loadFunctions(url: string): Promise<void> {
  const client = new Redis(url)
  await loadLibrary(client, installedScripts().library)
  client.disconnect()
}

async function assertEmpty(url: string): Promise<void> {
  const client = new Redis(url)
  try {
    const keys = await client.keys('*')
    if (keys.length > 0) {
      // Vitest prints an error of this function and would end with 0 all the same.
      process.exitCode = 1
      throw new Error(
        `expected no key left in Redis after the run, found ${keys.length}: ${keys.slice(0, 20).join(' ')}`,
      )
    }
  } finally {
    client.disconnect()
  }
}
