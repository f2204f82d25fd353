import { pipeline, Readable } from 'node:stream'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Access } from './access.ts'
import type { Assets } from './assets.ts'
import { codingOf, compressor } from './compression.ts'
import { type AnswerParts, firstAnswers } from './first-answers.ts'
import { admit } from './guard.ts'
import { endOf, type PageDocument } from './page-document.ts'
import { withPolicy } from './security-headers.ts'
import { withinMs } from './within-ms.ts'

/** The page is shown without answers that take longer, and asks again. */
const ANSWERS_MS = 1000

export interface PageParts extends AnswerParts {
  readonly access: Access
}

/**
 * The page. It brings what it would ask first, if the caller may see that; to all others it holds no data of any queue,
 * and asks for a token.
 */
export function addPageRoute(app: FastifyInstance, { fleetPage, queuePage }: Assets, parts: PageParts): void {
  app.get('/', async (request, reply) => {
    const [path = '', query] = request.originalUrl.split('?', 2)
    // The page's links are relative, so its path has to end in a slash.
    if (!path.endsWith('/')) {
      const folder = `${path.slice(path.lastIndexOf('/') + 1)}/`
      return reply.redirect(query === undefined ? folder : `${folder}?${query}`, 308)
    }
    const queue = new URLSearchParams(query).get('queue') ?? undefined
    const page = queue === undefined ? fleetPage : queuePage
    const coding = codingOf(request.headers['accept-encoding'])
    // A proxy that rewrites the document would change what the policy names by its hash.
    const headers = { 'cache-control': 'no-store, no-transform', vary: 'accept-encoding' }
    reply.headers({ ...withPolicy(page.policy), ...headers })
    reply.type('text/html; charset=utf-8')
    const text = Readable.from(textOf(page, answersFor(request, parts, queue)))
    if (!coding) return reply.send(text)
    // If the caller leaves, both end.
    return reply.header('content-encoding', coding).send(pipeline(text, compressor(coding), () => {}))
  })
}

/** The browser reads styles and scripts while Redis is asked. */
async function* textOf({ text }: PageDocument, answers: Promise<Readonly<Record<string, unknown>>>) {
  yield text
  yield endOf(await answers)
}

/** None where the caller is not admitted, or Redis does not answer: the page shows why when it asks by itself. */
async function answersFor(request: FastifyRequest, { access, ...parts }: PageParts, queue: string | undefined) {
  try {
    const { identity } = await admit(request, access)
    return await withinMs(ANSWERS_MS, firstAnswers(parts, identity, queue))
  } catch {
    return {}
  }
}
