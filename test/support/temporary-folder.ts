import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from './concurrent.ts'

/** A new folder that is removed after the current test. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-test-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Writes a shell script named `name` into `folder`, so that a test can put its own program on PATH. */
export function fakeProgram(folder: string, name: string, script: string): string {
  const file = join(folder, name)
  writeFileSync(file, `#!/bin/sh\n${script}\n`)
  chmodSync(file, 0o755)
  return file
}
