import type { Entry, HttpRequest, HttpResponse, Identity, Pass } from '../../src/middleware.ts'

/** A request of which only what shedders look at is there. */
export function requestOf(of: Partial<HttpRequest> = {}): HttpRequest {
  return {
    method: 'POST',
    url: '/queues/emails/jobs',
    header: () => undefined,
    remoteAddress: '192.0.2.1',
    body: () => Promise.resolve(new Uint8Array()),
    signal: new AbortController().signal,
    raw: undefined,
    ...of,
  }
}

/** A request of a class, by a caller of a name. */
export function of(trafficClass: string, name = 'joe', more: Partial<HttpRequest> = {}): HttpRequest {
  const identity: Identity = { name, trafficClass }
  return requestOf({ identity, ...more })
}

/** What a shedder says at once. */
export function now(entry: Entry | Promise<Entry>): Entry {
  if (entry instanceof Promise) throw new Error('expected an entry at once; got a promise')
  return entry
}

export function passOf(entry: Entry | Promise<Entry>): Pass {
  const found = now(entry)
  if (found.response) throw new Error(`expected a pass; got ${found.response.status}: ${found.response.body}`)
  return found
}

export function responseOf(entry: Entry | Promise<Entry>): HttpResponse {
  const { response } = now(entry)
  if (!response) throw new Error('expected a response; got a pass')
  return response
}

export function isRefused(entry: Entry | Promise<Entry>): boolean {
  return now(entry).response !== undefined
}

/** A clock that stands until the test moves it. */
export class HeldClock {
  ms = 1000
  readonly now = () => this.ms

  pass(ms: number): void {
    this.ms += ms
  }
}

/** Callers, by their names. */
export function callers(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `caller-${i}`)
}
