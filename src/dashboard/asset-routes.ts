import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Asset } from './assets.ts'
import { DashboardProblem } from './problem-error.ts'

const PAGE = 'index.html'

/** The page and its files. They are public: they hold no data of any queue. */
export function addAssetRoutes(app: FastifyInstance, assets: ReadonlyMap<string, Asset>): void {
  app.get('/', async (request, reply) => {
    const [path = '', query] = request.originalUrl.split('?', 2)
    // The page's links are relative, so its path has to end in a slash.
    if (!path.endsWith('/')) {
      const folder = `${path.slice(path.lastIndexOf('/') + 1)}/`
      return reply.redirect(query === undefined ? folder : `${folder}?${query}`, 308)
    }
    return sendAsset(request, reply, assets.get(PAGE))
  })
  app.get<{ Params: { '*': string } }>('/assets/*', async (request, reply) =>
    sendAsset(request, reply, assets.get(request.params['*'])),
  )
}

function sendAsset(request: FastifyRequest, reply: FastifyReply, asset: Asset | undefined): FastifyReply {
  if (!asset) throw new DashboardProblem(404, 'there is nothing here')
  reply.header('etag', asset.etag).header('cache-control', 'no-cache')
  if (isKnown(request.headers['if-none-match'], asset.etag)) return reply.code(304).send()
  return reply.type(asset.type).send(asset.body)
}

/** Whether the caller has this version. Weak and strong tags are compared alike. (RFC 9110, section 13.1.2) */
function isKnown(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false
  return ifNoneMatch.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === etag)
}
