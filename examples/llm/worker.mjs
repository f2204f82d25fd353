// Calls the models.
//   REDIS_URL=redis://localhost:6379 LLM_API_KEY=… node worker.mjs
import { ShapedWorker } from 'sluice'
import { extendProfile, profiles } from 'sluice/egress'
import { connection, prefix, queue, shape } from './queue.mjs'

const api = process.env.LLM_API ?? 'https://api.openai.com/v1/chat/completions'

async function call(job) {
  const { model, prompt, maxTokens } = job.data
  const response = await fetch(api, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${process.env.LLM_API_KEY}` },
    body: JSON.stringify({
      ...{ model, max_completion_tokens: maxTokens },
      messages: [{ role: 'user', content: prompt }],
    }),
    signal: AbortSignal.timeout(120_000),
  })
  const data = await response.json().catch(() => undefined)
  if (!response.ok) throw Object.assign(new Error(`the model answered ${response.status}`), { response, data })
  // The model and the customer get back what the call did not use.
  await job.settleCost({ tokens: data.usage.total_tokens })
  return data.choices[0].message.content
}

export const worker = new ShapedWorker('calls', call, {
  ...{ connection, prefix, shape },
  concurrency: 20,
  // The limits that the API's answers adjust, for the job's model.
  feedback: extendProfile(profiles.openai, { quota: { requests: 'requests', tokens: 'tokens' } }),
  removeOnComplete: { age: 3600, count: 10_000 },
  removeOnFail: { count: 5000 },
})
process.once('SIGTERM', () => Promise.all([worker.close(), queue.close()]))
