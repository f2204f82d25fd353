import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface Asset {
  readonly body: Buffer
  readonly type: string
  /** Strong: the hash of its bytes. (RFC 9110, section 8.8.3) */
  readonly etag: string
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.ico': 'image/x-icon',
  '.woff2': 'font/woff2',
  '.json': 'application/json',
  '.webmanifest': 'application/manifest+json',
}
const CHART_FILES = ['uPlot.esm.js', 'uPlot.min.css']

/**
 * Everything that is served, by its name below `/assets/`: the files in the folder `web` of the package, and those of
 * uPlot from its own package. They are read once, so that no request ever reads a file by name.
 */
export function readAssets(web = fileURLToPath(new URL('../../web/', import.meta.url))): ReadonlyMap<string, Asset> {
  const names = readdirSync(web, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && TYPES[extname(entry.name)] !== undefined)
    .map((entry) => join(entry.parentPath, entry.name))
  const charts = dirname(createRequire(import.meta.url).resolve('uplot'))
  return new Map([
    ...names.map((file): [string, Asset] => [file.slice(web.length).replaceAll('\\', '/'), assetOf(file)]),
    ...CHART_FILES.map((name): [string, Asset] => [name, assetOf(join(charts, name))]),
  ])
}

function assetOf(file: string): Asset {
  const body = readFileSync(file)
  const etag = `"${createHash('sha256').update(body).digest('base64url')}"`
  return { body, etag, type: TYPES[extname(file)] as string }
}
