import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, extname, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { readWebFiles } from './web-files.ts'

export interface Asset {
  readonly body: Buffer
  readonly type: string
  /** Strong: the hash of its bytes. (RFC 9110, section 8.8.3) */
  readonly etag: string
  readonly gzip: Buffer
  /** Other bytes, so another tag. */
  readonly gzipEtag: string
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
const PAGE = 'index.html'
/** Runs before the first picture, so it is no module. */
const PLAIN_SCRIPT = 'first-theme.js'
const CHART_FILES = ['uPlot.esm.js', 'uPlot.min.css']

/**
 * Everything that is served, by its name below `/assets/`: the files of `web/`, and those of uPlot from its own package.
 * They are read once, so that no request ever reads a file by name.
 */
export function readAssets(): ReadonlyMap<string, Asset> {
  const served = [...readWebFiles()].filter(([name]) => TYPES[extname(name)] !== undefined)
  const charts = dirname(createRequire(import.meta.url).resolve('uplot'))
  const files = new Map([
    ...served,
    ...CHART_FILES.map((name): [string, Buffer] => [name, readFileSync(join(charts, name))]),
  ])
  const page = files.get(PAGE)
  if (page) files.set(PAGE, withPreloads(page, [...files.keys()].filter(isModule)))
  return new Map([...files].map(([name, body]) => [name, assetOf(name, body)]))
}

/** Modules import each other over several steps; the page names them all at once, so that one round trip fetches them. */
function withPreloads(page: Buffer, modules: readonly string[]): Buffer {
  const links = modules.map((name) => `<link rel="modulepreload" href="assets/${name}">`)
  return Buffer.from(page.toString().replace('</head>', `${links.join('')}\n  </head>`))
}

function isModule(name: string): boolean {
  return name.endsWith('.js') && name !== PLAIN_SCRIPT
}

function assetOf(name: string, body: Buffer): Asset {
  const hash = createHash('sha256').update(body).digest('base64url')
  const type = TYPES[extname(name)] as string
  return { body, etag: `"${hash}"`, type, gzip: gzipSync(body, { level: 9 }), gzipEtag: `"${hash}-gzip"` }
}
