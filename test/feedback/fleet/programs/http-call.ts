import type { Job } from 'bullmq'
import type { Form, Task } from '../support/messages.ts'

/** What came, its body read. */
interface Came {
  readonly response: Response
  readonly data: { readonly error?: unknown; readonly __type?: string }
}

/** What a library throws where the answer is a refusal, as far as profiles look at it. */
const THROWN: Readonly<Record<Exclude<Form, 'response' | 'data'>, (came: Came) => object>> = {
  octokit: ({ response, data }) => ({
    ...{ name: 'HttpError', status: response.status, request: { method: 'GET', url: response.url } },
    response: { status: response.status, url: response.url, headers: plain(response), data },
  }),
  stripe: ({ response, data }) => ({
    ...{ type: 'StripeRateLimitError', statusCode: response.status, headers: plain(response), raw: data.error },
  }),
  openai: ({ response, data }) => ({ status: response.status, headers: response.headers, error: data.error }),
  aws: ({ response, data }) => ({
    ...{ name: data.__type, $fault: 'client', $metadata: { httpStatusCode: response.status } },
    $response: { statusCode: response.status, headers: plain(response) },
  }),
}

/** Sends a job as one request, and ends as a processor with one of the libraries does. */
export async function callHttp({ url, form }: Extract<Task, { kind: 'http' }>, job: Job, slotUs: number) {
  const headers = { 'x-job': job.id ?? '', 'x-process': String(process.pid), 'x-slot-us': String(slotUs) }
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(job.data) })
  const text = await response.text()
  if (form === 'response') return response
  const data = JSON.parse(text) as Came['data']
  const answer = { status: response.status, headers: plain(response), data }
  if (form === 'data' || response.ok) return answer
  throw Object.assign(new Error(`Request failed with status code ${response.status}`), THROWN[form]({ response, data }))
}

function plain(response: Response): Record<string, string> {
  return Object.fromEntries(response.headers)
}
