import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Closers } from 'sluice-programs'
import { holdLifeline } from '../services/exit-hook.ts'

/** Makes the temporary folder of the demonstration. It is removed in the end, also when this process is killed. */
export async function makeRunFolder(closers: Closers): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-demo-'))
  const callOff = holdLifeline(['rm', '-rf', dir])
  closers.push(async () => {
    await rm(dir, { recursive: true, force: true })
    callOff()
  })
  return dir
}

/** The compiled form of a program, which is named as in the project. */
export function compiledProgram(folder: string, program: string): string {
  return join(folder, program.replace(/\.ts$/, '.mjs'))
}
