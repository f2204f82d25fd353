import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { fakeProgram, temporaryFolder } from '../support/temporary-folder.ts'

const script = fileURLToPath(new URL('../../workers/install.mjs', import.meta.url))

/** A project with one dependency, and an npm that only notes how it was called. */
function project(npmScript = 'exit 0') {
  const root = temporaryFolder()
  mkdirSync(join(root, 'workers'))
  mkdirSync(join(root, 'bin'))
  copyFileSync(script, join(root, 'workers', 'install.mjs'))
  fakeProgram(join(root, 'bin'), 'npm', `echo "$@" >> "${join(root, 'calls')}"\n${npmScript}`)
  const record = (file: string, version: string, minute: number) => {
    mkdirSync(dirname(join(root, file)), { recursive: true })
    writeFileSync(join(root, file), JSON.stringify({ packages: { '': {}, 'node_modules/thing': { version } } }))
    const time = new Date(2026, 0, 1, 0, minute)
    utimesSync(join(root, file), time, time)
  }
  return {
    lock: (version: string, minute: number) => record('package-lock.json', version, minute),
    installed: (version: string, minute: number) => record('node_modules/.package-lock.json', version, minute),
    run: () => {
      const env = { ...process.env, PATH: `${join(root, 'bin')}:/usr/bin:/bin`, npm_execpath: undefined }
      return spawnSync(process.execPath, [join(root, 'workers', 'install.mjs')], { env, encoding: 'utf8' })
    },
    calls: () => readFileSync(join(root, 'calls'), 'utf8').trim(),
  }
}

test('missing dependencies are installed with npm ci, after one line that says so', () => {
  const { lock, run, calls } = project()
  lock('1.0.0', 1)
  expect(run()).toMatchObject({ status: 0, stdout: 'Installing dependencies: npm ci\n' })
  expect(calls()).toBe('ci --no-audit --no-fund --include=dev --loglevel=error')
})

test('dependencies older than a changed lock file are installed again', () => {
  const { lock, installed, run, calls } = project()
  installed('1.0.0', 1)
  lock('1.0.1', 2)
  expect(run().status).toBe(0)
  expect(calls()).toMatch(/^ci /)
})

test.each([
  ['newer than the lock file', 2, 1],
  ['older than the lock file and the same as it says', 1, 2],
])('dependencies that are %s are left alone', (_name, installedMinute, lockMinute) => {
  const { lock, installed, run, calls } = project()
  installed('1.0.0', installedMinute)
  lock('1.0.0', lockMinute)
  expect(run()).toMatchObject({ status: 0, stdout: '' })
  expect(calls).toThrow('ENOENT')
})

test('a failed installation ends with the exit code of npm and a message', () => {
  const { lock, run } = project('exit 7')
  lock('1.0.0', 1)
  const { status, stderr } = run()
  expect(status).toBe(7)
  expect(stderr).toMatch(
    /^The dependencies could not be installed: npm ci failed \(exit code 7\)\. Run it in .* to see why/,
  )
})
