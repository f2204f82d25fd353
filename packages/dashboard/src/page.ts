import { existsSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import staticFiles from '@fastify/static'
import type { FastifyInstance } from 'fastify'
import { segmentOf } from './path-segment.ts'

/** The page as Vite builds it: beside the code of the package, and in a clone where the package will have it. */
const FOLDER = fileURLToPath(new URL('../dist/web/', import.meta.url))
/** Of files whose names change with their bytes. Such names are all in this folder. */
const FOR_GOOD = 'public, max-age=31536000, immutable'
const HASHED_FOLDER = join(FOLDER, 'assets')
/** Proxies refuse responses with longer header fields. */
const MAX_SEGMENT_LENGTH = 512

/** The page and its files. They are public: they hold no data of any queue. */
export async function addPage(app: FastifyInstance): Promise<void> {
  if (!existsSync(FOLDER)) throw new Error(`expected the page of the dashboard in ${FOLDER}: run npm run build`)
  const queueView = fileOf('queue/queue-view.js')
  app.addHook('onRequest', async (request, reply) => {
    if (![app.prefix, `${app.prefix}/`].includes(request.routeOptions.url ?? '')) return
    const [path = '', query] = request.originalUrl.split('?', 2)
    // The page's links are relative, so its path has to end in a slash.
    if (!path.endsWith('/')) {
      const folder = `${basename(path)}/`
      return reply.redirect(query === undefined ? folder : `${folder}?${query}`, 308)
    }
    reply.header('link', needed(queueView, new URLSearchParams(query).get('queue')))
  })
  await app.register(staticFiles, {
    root: FOLDER,
    // A route for each file: no request ever names one by its path.
    wildcard: false,
    globIgnore: ['**/*.{br,gz}'],
    preCompressed: true,
    // The app may have it already, with files of its own.
    decorateReply: false,
    // All files of an installed package have the same time.
    ...{ cacheControl: false, etag: false, lastModified: false },
    setHeaders: (response, file) => {
      response.setHeader('vary', 'accept-encoding')
      response.setHeader('cache-control', file.startsWith(HASHED_FOLDER) ? FOR_GOOD : 'no-cache')
    },
  })
}

/** @param source of a module that is loaded later */
function fileOf(source: string): string {
  const manifest = JSON.parse(readFileSync(join(FOLDER, '.vite', 'manifest.json'), 'utf8'))
  return manifest[source].file
}

/**
 * What the page asks for once its scripts run, as the paths that `web/base/api.js` asks: the browser asks while it loads
 * these. (RFC 8288)
 * @param queue the name of the one that is shown; null: all are
 */
function needed(queueView: string, queue: string | null): string {
  const answers = queue === null ? ['api/fleet'] : answersOf(segmentOf(queue))
  const links = answers.map((path) => `<${path}>; rel=preload; as=fetch; crossorigin`)
  return [...(queue === null ? [] : [`<${queueView}>; rel=modulepreload`]), ...links].join(', ')
}

function answersOf(segment: string): readonly string[] {
  if (segment.length > MAX_SEGMENT_LENGTH) return []
  const path = `api/queues/${segment}`
  return ['api/fleet?count=0', path]
}
