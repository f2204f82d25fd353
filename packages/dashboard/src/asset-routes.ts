import type { FastifyInstance } from 'fastify'
import type { Assets } from './assets.ts'
import { codingOf } from './compression.ts'
import { DashboardProblem } from './problem-error.ts'

/** For a file whose address changes with its bytes. */
const FOR_GOOD = 'public, max-age=31536000, immutable'
const CHECKED_AGAIN = 'no-cache'

/** The files of the page. They are public: they hold no data of any queue. */
export function addAssetRoutes(app: FastifyInstance, { files, version }: Assets): void {
  app.get<{ Params: { '*': string } }>('/assets/*', async (request, reply) => {
    // A page of another version, before or after an update, gets what there is.
    const [, folder, name = ''] = /^(?:([\w-]{16})\/)?(.*)$/.exec(request.params['*']) ?? []
    const asset = files.get(name)
    if (!asset) throw new DashboardProblem(404, 'there is nothing here')
    const coding = codingOf(request.headers['accept-encoding'])
    const { body, etag } = coding ? asset.coded[coding] : asset
    reply.header('etag', etag).header('vary', 'accept-encoding')
    reply.header('cache-control', folder === version ? FOR_GOOD : CHECKED_AGAIN)
    if (isKnown(request.headers['if-none-match'], etag)) return reply.code(304).send()
    if (coding) reply.header('content-encoding', coding)
    return reply.type(asset.type).send(body)
  })
}

/** Whether the caller has this version. Weak and strong tags are compared alike. (RFC 9110, section 13.1.2) */
function isKnown(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false
  return ifNoneMatch.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === etag)
}
