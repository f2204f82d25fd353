import { domainToASCII } from 'node:url'
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
  'mail-domain': (value: unknown) => domainOf(textOf(value) ?? ''),
  'url-host': (value: unknown) => (URL.canParse(String(value)) ? hostOf(new URL(String(value))) : undefined),
} as const

/** A group is one destination, however callers write it: otherwise each spelling would have a rate of its own. */
function domainOf(addresses: string): string | undefined {
  const [domain = ''] = /^[^\s<>(),:;"[\\\]]*/.exec(addresses.slice(lastAtSign(addresses) + 1)) ?? []
  return textOf(withoutRoot(domainToASCII(domain) || domain.toLowerCase()))
}

/** That of the last address: an @ in a quoted name or in a comment is of none. The end of the text if there is none. */
function lastAtSign(text: string): number {
  let [found, isQuoted, comments] = [text.length, false, 0]
  for (let i = 0; i < text.length; i++) {
    const character = text[i]
    if (character === '\\') i += 1
    else if (character === '"') isQuoted = comments > 0 ? isQuoted : !isQuoted
    else if (isQuoted) continue
    else if (character === '(') comments += 1
    else if (character === ')') comments = Math.max(0, comments - 1)
    else if (character === '@' && comments === 0) found = i
  }
  return found
}

function hostOf({ hostname, port }: URL): string | undefined {
  return textOf(withoutRoot(hostname) + (port && `:${port}`))
}

/** The dot at the end of a name is that of the root, which may be written or not. */
function withoutRoot(name: string): string {
  return name.endsWith('.') ? name.slice(0, -1) : name
}

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
