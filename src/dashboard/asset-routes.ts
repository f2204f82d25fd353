import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Asset, Assets } from './assets.ts'
import { takesGzip } from './compression.ts'
import { DashboardProblem } from './problem-error.ts'

/** For a file whose address changes with its bytes. */
const FOR_GOOD = 'public, max-age=31536000, immutable'
const CHECKED_AGAIN = 'no-cache'

/** The page and its files. They are public: they hold no data of any queue. */
export function addAssetRoutes(app: FastifyInstance, { files, fleetPage, queuePage, version }: Assets): void {
  app.get('/', async (request, reply) => {
    const [path = '', query] = request.originalUrl.split('?', 2)
    // The page's links are relative, so its path has to end in a slash.
    if (!path.endsWith('/')) {
      const folder = `${path.slice(path.lastIndexOf('/') + 1)}/`
      return reply.redirect(query === undefined ? folder : `${folder}?${query}`, 308)
    }
    const isOfQueue = new URLSearchParams(query).has('queue')
    return sendAsset(request, reply, isOfQueue ? queuePage : fleetPage, CHECKED_AGAIN)
  })
  app.get<{ Params: { '*': string } }>('/assets/*', async (request, reply) => {
    // A page of another version, before or after an update, gets what there is.
    const [, folder, name = ''] = /^(?:([\w-]{16})\/)?(.*)$/.exec(request.params['*']) ?? []
    return sendAsset(request, reply, files.get(name), folder === version ? FOR_GOOD : CHECKED_AGAIN)
  })
}

function sendAsset(
  request: FastifyRequest,
  reply: FastifyReply,
  asset: Asset | undefined,
  cacheControl: string,
): FastifyReply {
  if (!asset) throw new DashboardProblem(404, 'there is nothing here')
  const zips = takesGzip(request.headers['accept-encoding'])
  const etag = zips ? asset.gzipEtag : asset.etag
  reply.header('etag', etag).header('cache-control', cacheControl).header('vary', 'accept-encoding')
  if (isKnown(request.headers['if-none-match'], etag)) return reply.code(304).send()
  if (zips) reply.header('content-encoding', 'gzip')
  return reply.type(asset.type).send(zips ? asset.gzip : asset.body)
}

/** Whether the caller has this version. Weak and strong tags are compared alike. (RFC 9110, section 13.1.2) */
function isKnown(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false
  return ifNoneMatch.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === etag)
}
