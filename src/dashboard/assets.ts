import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, extname, join } from 'node:path'
import { readWebFiles } from './web-files.ts'

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
 * Everything that is served, by its name below `/assets/`: the files of `web/`, and those of uPlot from its own package.
 * They are read once, so that no request ever reads a file by name.
 */
export function readAssets(): ReadonlyMap<string, Asset> {
  const served = [...readWebFiles()].filter(([name]) => TYPES[extname(name)] !== undefined)
  const charts = dirname(createRequire(import.meta.url).resolve('uplot'))
  return new Map([
    ...served.map(([name, body]): [string, Asset] => [name, assetOf(name, body)]),
    ...CHART_FILES.map((name): [string, Asset] => [name, assetOf(name, readFileSync(join(charts, name)))]),
  ])
}

function assetOf(name: string, body: Buffer): Asset {
  const etag = `"${createHash('sha256').update(body).digest('base64url')}"`
  return { body, etag, type: TYPES[extname(name)] as string }
}
