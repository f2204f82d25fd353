// Plain JavaScript: `npm start` and `npm test` run it before they compile anything.
import { readdirSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const projectRoot = dirname(dirname(fileURLToPath(import.meta.url)))

/** @param {string} path */
const changedMs = (path) => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0

/** @param {string} configFile */
async function vite(configFile) {
  const { build } = await import('vite')
  await build({ configFile })
}

/**
 * Builds the page of the dashboard if it is missing or older than its sources or the packages.
 * @param {string} root the folder of package.json
 * @param {(configFile: string) => Promise<void>} make builds it
 */
export async function ensurePage(root = projectRoot, make = vite) {
  const dashboard = join(root, 'packages', 'dashboard')
  const web = join(dashboard, 'web')
  const configFile = join(dashboard, 'vite.config.ts')
  // The folders too: a file may have gone.
  const sources = readdirSync(web, { recursive: true, encoding: 'utf8' }).map((name) => join(web, name))
  const installed = join(root, 'node_modules', '.package-lock.json')
  const newestMs = Math.max(...[configFile, installed, web, ...sources].map(changedMs))
  if (changedMs(join(dashboard, 'dist', 'web', 'index.html.gz')) <= newestMs) await make(configFile)
}
