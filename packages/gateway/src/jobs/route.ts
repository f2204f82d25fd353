import { pathOf } from '../middleware.ts'

/** What a path stands for. */
export type Route =
  | { readonly kind: 'openapi' }
  | { readonly kind: 'jobs' | 'meter'; readonly queueName: string }
  | { readonly kind: 'job'; readonly queueName: string; readonly id: string }
  /** Below the gateway's own paths, but unknown. */
  | { readonly kind: 'nothing' }

/** The methods that each kind of path allows. */
export const METHODS: Readonly<Record<Exclude<Route['kind'], 'nothing'>, readonly string[]>> = {
  openapi: ['GET', 'HEAD'],
  jobs: ['POST'],
  job: ['GET', 'HEAD', 'DELETE'],
  meter: ['GET', 'HEAD'],
}

/**
 * Parses a path. Case, slashes and everything else must match exactly.
 * @param url path and query
 * @returns undefined for paths outside the gateway
 */
export function routeOf(url: string, basePath: string): Route | undefined {
  const path = pathOf(url)
  if (!path.startsWith(`${basePath}/`)) return undefined
  const [first, queue, what, ...rest] = path.slice(basePath.length + 1).split('/')
  if (first === 'openapi.json' && queue === undefined) return { kind: 'openapi' }
  if (first !== 'queues') return undefined
  const queueName = decoded(queue)
  if (!queueName) return { kind: 'nothing' }
  if (rest.length === 0 && (what === 'jobs' || what === 'meter')) return { kind: what, queueName }
  if (rest.length === 1 && rest[0] && what === 'jobs') return { kind: 'job', queueName, id: rest[0] }
  return { kind: 'nothing' }
}

/** A segment of a path; undefined if it cannot be decoded. */
export function decoded(segment: string | undefined): string | undefined {
  try {
    return segment && decodeURIComponent(segment)
  } catch {
    return undefined
  }
}
