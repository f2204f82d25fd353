import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** The full path of the first executable of these names on PATH (`Path` on Windows), or undefined. */
export function findProgram(names: readonly string[], env: NodeJS.ProcessEnv): string | undefined {
  const folders = (env.PATH ?? env.Path ?? '').split(delimiter).filter((folder) => folder !== '')
  const suffix = process.platform === 'win32' ? '.exe' : ''
  for (const folder of folders) {
    for (const name of names) {
      const file = join(folder, name + suffix)
      if (isExecutable(file)) return file
    }
  }
  return undefined
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch {
    return false
  }
}
