// The entries for what is called, with the packages that they need. Prints what came of a request as JSON.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { answerOf, profiles, testRules } from 'sluice/egress'
import { egressFetch, HttpResponseError } from 'sluice-fetch'
import { createGatewayClient, fetchPolitely, GatewayRefusedError } from 'sluice-gateway/client'

const server = createServer((_, response) => response.writeHead(429, { 'retry-after': '7' }).end()).listen(
  0,
  '127.0.0.1',
)
await once(server, 'listening')
const call = egressFetch({ targets: { here: { baseUrl: `http://127.0.0.1:${server.address().port}` } } })
const error = await call({ target: 'here' }).catch((thrown) => thrown)
await call.close()
const jobs = createGatewayClient({ url: `http://127.0.0.1:${server.address().port}`, fetch })
const refusal = await jobs.enqueue('mails', {}).catch((thrown) => thrown)
server.close()

const [said] = profiles.http.listen({ threw: error }, { receivedAtMs: Date.now(), latencyMs: 1 })
const [tested] = testRules([{ match: { status: 429 }, action: 'ignore' }], answerOf({ threw: error }))
const require = createRequire(import.meta.url)
console.log(
  JSON.stringify({
    isTyped: error instanceof HttpResponseError,
    pauseMs: said.feedback.forMs,
    wins: tested.wins,
    polite: typeof fetchPolitely,
    refusedForMs: refusal instanceof GatewayRefusedError && refusal.retryAfterMs,
    required: ['sluice-gateway/client', 'sluice/egress', 'sluice-fetch'].map(
      (entry) => Object.keys(require(entry)).length > 2,
    ),
  }),
)
