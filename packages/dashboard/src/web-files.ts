import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'rolldown'

const WEB_FOLDER = fileURLToPath(new URL('../web/', import.meta.url))
/** Imported as it stands: it is served from its own package. */
const CHARTS = './uPlot.esm.js'

/**
 * What is served of `web/`, by name: its modules as few small scripts, and its other files as they are. In the package,
 * whose build replaces this module, it holds the files themselves.
 */
export function readWebFiles(): Promise<ReadonlyMap<string, string>> {
  files ??= read()
  return files
}
let files: Promise<ReadonlyMap<string, string>> | undefined

async function read(): Promise<ReadonlyMap<string, string>> {
  const names = readdirSync(WEB_FOLDER, { recursive: true, encoding: 'utf8' })
  const plain = names.filter((name) => /^first-theme\.js$|\.(html|css|svg)$/.test(name)).toSorted()
  const texts = plain.map((name) => [name.replaceAll('\\', '/'), readFileSync(join(WEB_FOLDER, name), 'utf8')] as const)
  const [parts, whole] = await Promise.all([scripts(true), scripts(false)])
  return new Map([...texts, ...parts, ['whole.js', whole.get('main.js') as string]])
}

/**
 * The modules of the page: `main.js`, and what it loads later.
 * @param isSplit whether that is a script of its own; if not, it is part of `main.js`
 */
async function scripts(isSplit: boolean): Promise<ReadonlyMap<string, string>> {
  const { output } = await build({
    cwd: WEB_FOLDER,
    input: './main.js',
    platform: 'browser',
    write: false,
    logLevel: 'silent',
    plugins: [
      {
        name: 'charts',
        resolveId: (id) => (id.endsWith(CHARTS.slice(1)) ? { id: CHARTS, external: 'relative' } : null),
      },
    ],
    output: { minify: true, entryFileNames: '[name].js', chunkFileNames: '[name].js', codeSplitting: isSplit },
  })
  return new Map(output.flatMap((file) => (file.type === 'chunk' ? [[file.fileName, file.code] as const] : [])))
}
