import type { HttpAnswer } from 'sluice/egress'

/** Bodies of refusals are small; longer ones are not used. */
const MAX_BYTES = 65_536

/**
 * A response in the form that parsers read. The body of a refusal is read from a clone, so that the response holds its
 * whole body in memory, and its connection is free while another attempt waits.
 */
export async function receivedAnswer(
  response: Response,
  request: { readonly url: string; readonly method: string },
  receivedAtMs: number,
): Promise<HttpAnswer> {
  const { status } = response
  const body = status === 403 || status === 429 || status >= 500 ? await readBody(response) : undefined
  return {
    protocol: 'http',
    failed: status >= 400,
    text: '',
    name: '',
    code: '',
    status,
    headers: Object.fromEntries(response.headers),
    body,
    receivedAtMs,
    url: response.url || request.url,
    method: request.method,
  }
}

async function readBody(response: Response): Promise<unknown> {
  const text = await readText(response).catch(() => undefined)
  if (text === undefined) return undefined
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

async function readText(response: Response): Promise<string | undefined> {
  if (!response.body) return undefined
  const reader = (response.clone().body as ReadableStream<Uint8Array>).getReader()
  const decoder = new TextDecoder()
  let text = ''
  for (let bytes = 0; ; ) {
    const { done, value } = await reader.read()
    if (done) return text + decoder.decode()
    bytes += value.byteLength
    if (bytes > MAX_BYTES) {
      // Settles only once the response's own half is cancelled too.
      void reader.cancel()
      return undefined
    }
    text += decoder.decode(value, { stream: true })
  }
}
