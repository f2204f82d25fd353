// app/api/signup/route.mjs of a Next.js application.
import { queue } from './queue.mjs'

export const runtime = 'nodejs'

export async function POST(request) {
  const { to } = await request.json()
  const offer = await queue.offer('welcome', { to }, { attempts: 3 })
  if (offer.accepted) return Response.json({ id: offer.job.id, startsAt: offer.startsAt }, { status: 202 })
  const seconds = String(Math.ceil(offer.retryAfterMs / 1000))
  return Response.json({ error: `try again in ${seconds} s` }, { status: 429, headers: { 'retry-after': seconds } })
}
