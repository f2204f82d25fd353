import { BodyTooLargeError } from '../body.ts'
import type { Answer, HttpRequest } from '../door.ts'
import type { HeaderForm } from '../words/rate-limit-fields.ts'
import { rateLimitFields } from '../words/rate-limit-fields.ts'
import { endedAnswer, jsonAnswer } from './answers.ts'
import type { Admitted, GatewayQueue, Once } from './gateway-queue.ts'
import { fingerprintOf, readIdempotencyKey, scopedKey } from './idempotency-key.ts'
import type { NewJob } from './job-items.ts'
import { parseJson } from './json.ts'
import { checkMedia } from './media.ts'
import { preferredWaitS } from './prefer.ts'

export interface PostContext {
  /** The path of the queue's jobs. */
  readonly path: string
  readonly forms: readonly HeaderForm[]
}

/**
 * Lets the jobs of a request in: 202, or 200 with what came of it where the caller wanted to wait.
 * @throws RequestProblem, BodyTooLargeError, CallerGoneError and what `add` of the queue throws
 */
export async function postJobs(request: HttpRequest, queue: GatewayQueue, context: PostContext): Promise<Answer> {
  checkMedia(request)
  const { idempotency, maxBodyBytes, maxDepth } = queue.rule
  const key = readIdempotencyKey(request.header('idempotency-key'), idempotency === 'required')
  // What came before is known by its key, however full the queue is now.
  if (key === undefined) queue.refuseIfFull()
  const bytes = await readBody(request, maxBodyBytes)
  const body = parseJson(bytes, maxDepth)
  const jobs = queue.items.read(body)
  const once: Once | undefined =
    key === undefined ? undefined : { key: scopedKey(request.identity, key), fingerprint: fingerprintOf(bytes) }
  const admitted = await queue.admit(jobs, once)
  const isOne = !Array.isArray(body)
  const answer = isOne && queue.rule.maxWaitMs > 0 ? await ended(request, queue, admitted) : undefined
  return answer ?? accepted(queue, jobs, admitted, isOne, context)
}

async function readBody(request: HttpRequest, maxBodyBytes: number): Promise<Uint8Array> {
  // What is announced is not read at all.
  if (Number(request.header('content-length') ?? 0) > maxBodyBytes) throw new BodyTooLargeError(maxBodyBytes)
  const bytes = await request.body()
  if (bytes.byteLength > maxBodyBytes) throw new BodyTooLargeError(maxBodyBytes)
  return bytes
}

/** Undefined: nobody wants to wait for it, or it takes longer. */
async function ended(request: HttpRequest, queue: GatewayQueue, { ids, replayed }: Admitted) {
  const wanted = preferredWaitS(request.header('prefer'))
  const waitS = Math.min(wanted ?? 0, Math.floor(queue.rule.maxWaitMs / 1000))
  if (waitS === 0) return undefined
  const [id] = ids as [string]
  const ending = await queue.awaitEnding(id, waitS * 1000, request.signal)
  if (!ending) return undefined
  const answer = endedAnswer(id, ending, waitS)
  return replayed ? { ...answer, headers: { ...answer.headers, ...REPLAYED } } : answer
}

const REPLAYED = { 'idempotency-replayed': 'true' }

async function accepted(
  queue: GatewayQueue,
  jobs: readonly NewJob[],
  admitted: Admitted,
  isOne: boolean,
  { path, forms }: PostContext,
): Promise<Answer> {
  const { ids, position, replayed } = admitted
  const unknown = queue.meterForFields.refresh()
  if (unknown) await unknown
  const startsAt = admitted.startsAt ?? (position === undefined ? undefined : queue.meterForFields.startsAt(position))
  const states = replayed ? await Promise.all(ids.map((id) => placeOf(queue, id))) : jobs.map(stateOf)
  const told = ids.map((id, i) => (i === 0 ? { id, state: states[i], position, startsAt } : { id, state: states[i] }))
  const headers = {
    ...rateLimitFields(queue.meterForFields.policies(), forms),
    ...(replayed && REPLAYED),
    ...(isOne && { location: `${path}/${ids[0]}` }),
  }
  return jsonAnswer(202, isOne ? told[0] : { jobs: told }, headers)
}

/** What was just let in is where it was put. */
function stateOf({ opts }: NewJob): string {
  if (opts.delay) return 'delayed'
  return opts.priority ? 'prioritized' : 'waiting'
}

/** What came earlier may be anywhere, or gone. */
async function placeOf(queue: GatewayQueue, id: string): Promise<string> {
  const place = await queue.locate(id)
  return place?.state ?? 'removed'
}
