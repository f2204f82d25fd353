// app/api/welcome/route.mjs of a Next.js application: a route handler that takes jobs, or says when to come back.
import { mails } from './queue.mjs'

export const runtime = 'nodejs'

export async function POST(request) {
  const { to } = await request.json()
  const offer = await mails.offer('welcome', { to })
  if (offer.accepted) return Response.json({ id: offer.job.id, position: offer.position }, { status: 202 })
  const headers = { 'retry-after': String(Math.ceil(offer.retryAfterMs / 1000)) }
  return Response.json({ error: 'The queue is full.', retryAfterMs: offer.retryAfterMs }, { status: 429, headers })
}
