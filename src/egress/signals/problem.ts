import type { HttpAnswer } from '../answer.ts'
import { bodyList, bodyText } from './body.ts'

/** Problem types (RFC 9457) of draft-ietf-httpapi-ratelimit-headers 09 to 11. */
export type ProblemType = 'quota-exceeded' | 'temporary-reduced-capacity' | 'abnormal-usage-detected'

export interface Problem {
  readonly type: ProblemType
  /** Names of policies. */
  readonly violated: readonly string[]
}

const BASE = 'https://iana.org/assignments/http-problem-types#'
const TYPES: readonly string[] = [
  'quota-exceeded',
  'temporary-reduced-capacity',
  'abnormal-usage-detected',
] satisfies ProblemType[]

/** The problem that the body names, if it is about rate limits. The example of draft 09 has `policy-violations`. */
export function readProblem({ body }: HttpAnswer): Problem | undefined {
  const uri = bodyText(body, 'type')
  const type = uri.startsWith(BASE) ? uri.slice(BASE.length) : ''
  if (!TYPES.includes(type)) return undefined
  const names = [...bodyList(body, 'violated-policies'), ...bodyList(body, 'policy-violations')]
  return { type: type as ProblemType, violated: names.filter((name) => typeof name === 'string') }
}
