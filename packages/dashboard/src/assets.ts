import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, extname, join } from 'node:path'
import { CODINGS, type Coding, compressed } from './compression.ts'
import { documentOf, type PageDocument, pageModules } from './page-document.ts'
import { readWebFiles } from './web-files.ts'

/** The bytes of a file in one coding, or as they are. */
export interface Representation {
  readonly body: Buffer
  /** Strong: the hash of its bytes. (RFC 9110, section 8.8.3) */
  readonly etag: string
}

export interface Asset extends Representation {
  readonly type: string
  readonly coded: Readonly<Record<Coding, Representation>>
}

export interface Assets {
  /** By their names below `/assets/`. */
  readonly files: ReadonlyMap<string, Asset>
  /** The documents: for all queues, and for one. Each holds all that it needs to be shown. */
  readonly fleetPage: PageDocument
  readonly queuePage: PageDocument
  /** The pages name files below a folder with this name, which changes with any of them: browsers keep those for good. */
  readonly version: string
}

const TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
}

/**
 * Everything that is served: the files of `web/`, and those of uPlot from its own package. They are read once, so that
 * no request ever reads a file by name.
 */
export function readAssets(): Promise<Assets> {
  assets ??= read()
  return assets
}
let assets: Promise<Assets> | undefined

async function read(): Promise<Assets> {
  const web = await readWebFiles()
  const charts = dirname(createRequire(import.meta.url).resolve('uplot'))
  const chartFile = (name: string) => readFileSync(join(charts, name), 'utf8')
  const { fleet, queue, later } = pageModules(web)
  const texts = new Map([
    ['favicon.svg', web.get('favicon.svg') as string],
    ['queue-view.js', later],
    // Its module is three times as large as its minified script.
    ['uPlot.esm.js', `${chartFile('uPlot.iife.min.js')}\nexport default uPlot\n`],
  ])
  const files = new Map([...texts].map(([name, text]) => [name, assetOf(name, text)]))
  const version = digest([...files.values()].map(({ etag }) => etag).join()).slice(0, 16)
  const inside = new Map([...web, ['uPlot.min.css', chartFile('uPlot.min.css')]])
  const documentWith = (module: string) => documentOf(new Map([...inside, ['main.js', module]]), version)
  return { files, version, fleetPage: documentWith(fleet), queuePage: documentWith(queue) }
}

function assetOf(name: string, text: string): Asset {
  const body = Buffer.from(text)
  const hash = digest(body)
  const coded = CODINGS.map((coding) => [coding, { body: compressed(body, coding), etag: `"${hash}-${coding}"` }])
  return { body, etag: `"${hash}"`, type: TYPES[extname(name)] as string, coded: Object.fromEntries(coded) }
}

function digest(of: Buffer | string): string {
  return createHash('sha256').update(of).digest('base64url')
}
