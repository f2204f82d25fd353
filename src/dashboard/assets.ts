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

export interface Assets {
  /** By their names below `/assets/`. */
  readonly files: ReadonlyMap<string, Asset>
  /** The documents: for all queues, and for one, which names what else it needs. */
  readonly fleetPage: Asset
  readonly queuePage: Asset
  /** The pages name files below a folder with this name, which changes with any of them: browsers keep those for good. */
  readonly version: string
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}
const PAGE = 'index.html'
const STYLES = 'page.css'
/** What the page of all queues loads; all other scripts are for the page of a queue. */
const FIRST_SCRIPTS = ['first-theme.js', 'main.js']
const STYLE_LINK = /<link rel="stylesheet" href="assets\/([^"]+)">\n */g

/**
 * Everything that is served: the files of `web/`, and those of uPlot from its own package. They are read once, so that
 * no request ever reads a file by name.
 */
export async function readAssets(): Promise<Assets> {
  const web = new Map(await readWebFiles())
  const page = web.get(PAGE) as string
  web.delete(PAGE)
  const charts = dirname(createRequire(import.meta.url).resolve('uplot'))
  const chartFile = (name: string) => readFileSync(join(charts, name), 'utf8')
  // Its module is three times as large as its minified script.
  web.set('uPlot.esm.js', `${chartFile('uPlot.iife.min.js')}\nexport default uPlot\n`)
  web.set('uPlot.min.css', chartFile('uPlot.min.css'))
  const sheets = [...page.matchAll(STYLE_LINK)].map(([, name]) => name as string)
  web.set(STYLES, sheets.map((name) => web.get(name)).join('\n'))
  for (const name of sheets) web.delete(name)
  const files = new Map([...web].map(([name, text]) => [name, assetOf(name, text)]))
  const version = digest([...files.values()].map(({ etag }) => etag).join()).slice(0, 16)
  const later = [...files.keys()].filter((name) => name.endsWith('.js') && !FIRST_SCRIPTS.includes(name))
  const pageWith = (preloads: readonly string[]) => assetOf(PAGE, pageText(page, version, preloads))
  return { files, version, fleetPage: pageWith([]), queuePage: pageWith(later) }
}

/** Modules import each other over several steps; the page names them all at once, so that one round trip fetches them. */
function pageText(page: string, version: string, modules: readonly string[]): string {
  const links = modules.map((name) => `<link rel="modulepreload" href="assets/${name}">`)
  const styles = `<link rel="stylesheet" href="assets/${STYLES}">`
  return page
    .replaceAll(STYLE_LINK, '')
    .replace('</head>', `${[styles, ...links].map((link) => `  ${link}\n  `).join('')}</head>`)
    .replaceAll('"assets/', `"assets/${version}/`)
}

function assetOf(name: string, text: string): Asset {
  const body = Buffer.from(text)
  const hash = digest(body)
  const type = TYPES[extname(name)] as string
  return { body, etag: `"${hash}"`, type, gzip: gzipSync(body, { level: 9 }), gzipEtag: `"${hash}-gzip"` }
}

function digest(of: Buffer | string): string {
  return createHash('sha256').update(of).digest('base64url')
}
