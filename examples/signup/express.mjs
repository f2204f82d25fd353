// Sign-ups and logins with Express.
import express from 'express'
import { Redis } from 'ioredis'
import { createLimiter } from 'sluice/limits'
import { byAddress, connectMiddleware, rateLimit, refusalResponse } from 'sluice-gateway'
import { connection, prefix, queue } from './queue.mjs'

export const redis = new Redis(connection.url)
// Exactly five attempts per address in any 15 minutes, whichever server answers.
const definition = { name: 'logins', algorithm: 'sliding-window-log', rate: '5/15min' }
export const logins = createLimiter(redis, { ...definition, prefix, timeoutMs: 1000 })

export const app = express()
app.use(express.json())

app.post('/login', connectMiddleware(rateLimit({ limit: logins, key: byAddress() })), (_request, response) => {
  response.json({ ok: true })
})

app.post('/signup', async (request, response) => {
  const job = await queue.add('welcome', { to: request.body.to }, { attempts: 3 })
  response.status(202).json({ id: job.id })
})

// 429, and when to come back; 503 if Redis does not answer.
app.use((error, _request, response, next) => {
  const refusal = refusalResponse(error, { policyName: 'signups' })
  if (!refusal) return next(error)
  response.status(refusal.status).set(refusal.headers).send(refusal.body)
})

export const server = app.listen(process.env.PORT ?? 3000, '127.0.0.1')
