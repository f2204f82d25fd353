import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const WEB_FOLDER = fileURLToPath(new URL('../../web/', import.meta.url))

/** The files of `web/` by name. In the package, whose build replaces this module, it holds the files themselves. */
export function readWebFiles(): ReadonlyMap<string, Buffer> {
  const files = readdirSync(WEB_FOLDER, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  return new Map(
    files.map((entry) => {
      const path = join(entry.parentPath, entry.name)
      return [path.slice(WEB_FOLDER.length).replaceAll('\\', '/'), readFileSync(path)]
    }),
  )
}
