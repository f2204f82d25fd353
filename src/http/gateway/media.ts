import type { HttpRequest } from '../door.ts'
import { problem } from './request-problem.ts'

const JSON_TYPE = /^application\/json\s*(?:;\s*charset\s*=\s*(?:utf-8|"utf-8")\s*)?$/i

/** @throws RequestProblem 415 for anything but JSON in UTF-8, as it is: a compressed body may be a thousand times longer */
export function checkMedia(request: HttpRequest): void {
  const coding = request.header('content-encoding')?.trim().toLowerCase()
  if (coding !== undefined && coding !== 'identity') {
    throw problem(415, 'The body must come without a content coding.', { 'accept-encoding': 'identity' })
  }
  if (JSON_TYPE.test(request.header('content-type')?.trim() ?? '')) return
  throw problem(415, 'The body must be application/json in UTF-8.', { 'accept-post': 'application/json' })
}
