import type { CookieSerializeOptions } from '@fastify/cookie'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { z } from 'zod'
import { type Access, SESSION_COOKIE } from './access.ts'
import { checkChange } from './guard.ts'
import { DashboardProblem } from './problem-error.ts'

const loginSchema = z.strictObject({ token: z.string().min(1).max(1024) })

export function addSessionRoutes(app: FastifyInstance, access: Access): void {
  // Another site must not log a browser in under another identity.
  const onRequest = async (request: FastifyRequest) => checkChange(request, false)
  const path = app.prefix === '' ? '/' : app.prefix
  const terms = (request: FastifyRequest): CookieSerializeOptions => ({
    path,
    httpOnly: true,
    sameSite: 'strict',
    secure: request.protocol === 'https',
  })
  app.post('/login', { onRequest }, async (request, reply) => {
    const parsed = loginSchema.safeParse(request.body)
    if (!parsed.success) throw new DashboardProblem(422, 'expected {"token": "…"}')
    const { id, lifetimeMs } = await access.login(parsed.data.token, request)
    // A new login closes the previous session.
    access.logout(request)
    reply.setCookie(SESSION_COOKIE, id, { ...terms(request), maxAge: Math.floor(lifetimeMs / 1000) })
    return reply.code(204).send()
  })
  app.post('/logout', { onRequest }, async (request, reply) => {
    access.logout(request)
    reply.clearCookie(SESSION_COOKIE, terms(request))
    return reply.code(204).send()
  })
}
