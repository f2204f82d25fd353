// Calls the route handler as Next.js does. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/nextjs/main.mjs
import { mails } from './queue.mjs'
import { POST } from './route.mjs'

for (const to of ['ann@example.com', 'bo@example.com', 'cy@example.com']) {
  const request = new Request('http://localhost/api/welcome', { method: 'POST', body: JSON.stringify({ to }) })
  const response = await POST(request)
  const { position, error } = await response.json()
  console.log(`${to}: ${response.status} ${error ?? `${position} before it`}`)
}

await mails.obliterate({ force: true })
await mails.close()
