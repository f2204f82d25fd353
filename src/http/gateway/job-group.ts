import type { HttpRequest } from '../middleware.ts'
import type { GroupRule } from './options.ts'
import { problem } from './request-problem.ts'

/**
 * The group of a job of this request; undefined if it has none.
 * @param at the place of the job in the body, for messages
 * @throws RequestProblem 403 or 422
 */
export function groupOf(rule: GroupRule, request: HttpRequest, data: unknown, at: string): string | undefined {
  if (rule === 'token') return request.identity?.name ?? refuse(403, 'Only callers with a token may add jobs here.')
  if ('header' in rule) {
    const value = request.header(rule.header.toLowerCase())?.trim()
    if (value) return value
    return rule.required
      ? refuse(422, `The field ${rule.header} is missing: it names the group of the jobs.`)
      : undefined
  }
  const found = FORMS[rule.as ?? 'text'](valueAt(data, rule.data))
  if (found !== undefined || !rule.required) return found
  return refuse(422, `${at}/data${rule.data} names no group of jobs.`)
}

function refuse(status: 403 | 422, detail: string): never {
  throw problem(status, detail)
}

/** What a value says about the group. */
const FORMS = {
  text: (value: unknown) => (typeof value === 'number' ? String(value) : textOf(value)),
  'mail-domain': (value: unknown) => textOf(/@([^@\s>]+)>?\s*$/.exec(textOf(value) ?? '')?.[1])?.toLowerCase(),
  'url-host': (value: unknown) => (URL.canParse(String(value)) ? textOf(new URL(String(value)).host) : undefined),
} as const

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** By a JSON Pointer. (RFC 6901) */
function valueAt(data: unknown, pointer: string): unknown {
  const names = pointer.split('/').slice(1)
  return names.reduce((value: unknown, name) => {
    const key = name.replaceAll('~1', '/').replaceAll('~0', '~')
    return typeof value === 'object' && value !== null && Object.hasOwn(value, key)
      ? (value as Record<string, unknown>)[key]
      : undefined
  }, data)
}
