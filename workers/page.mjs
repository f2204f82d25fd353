// Plain JavaScript: `npm start` and `npm test` run it before they compile anything.
import { readdirSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const projectRoot = dirname(dirname(fileURLToPath(import.meta.url)))

/** @param {string} path */
const changedMs = (path) => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0

/** Builds the page of the dashboard if it is missing or older than its sources or the packages. */
export async function ensurePage() {
  const dashboard = join(projectRoot, 'packages', 'dashboard')
  const web = join(dashboard, 'web')
  const configFile = join(dashboard, 'vite.config.ts')
  // The folders too: a file may have gone.
  const sources = readdirSync(web, { recursive: true, encoding: 'utf8' }).map((name) => join(web, name))
  const installed = join(projectRoot, 'node_modules', '.package-lock.json')
  const newestMs = Math.max(...[configFile, installed, web, ...sources].map(changedMs))
  if (changedMs(join(dashboard, 'dist', 'web', 'index.html.gz')) > newestMs) return
  const { build } = await import('vite')
  await build({ configFile })
}
