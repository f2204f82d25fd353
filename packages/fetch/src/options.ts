import { lookup as dnsLookup } from 'node:dns/promises'
import { MAX_TIMER_MS } from 'sluice/internal'
import { InvalidFetchOptionsError } from './errors.ts'
import { type Form, fitsForm, isListOf, isRecord, isWhole } from './form.ts'
import { readTarget, type Target, type TargetConfig } from './target.ts'

/** Resolves a host name to all of its addresses; rejects when it has none. */
export type Lookup = (hostname: string) => Promise<readonly { readonly address: string; readonly family: number }[]>

export interface EgressFetchOptions {
  /** Where requests may go, by name. */
  readonly targets?: Readonly<Record<string, TargetConfig>> | undefined
  /** Also accept URLs from requests: https only, to public addresses only. Default false. */
  readonly allowUrls?: boolean | undefined
  /** The ports that such URLs may have; default 443. */
  readonly urlPorts?: readonly number[] | undefined
  /** The time limit of one attempt, from the lookup of the name to the end of the answer, ms; default 30 000. */
  readonly timeoutMs?: number | undefined
  /** The most bytes of an answer's body that are read; default 1 MiB. */
  readonly maxResponseBytes?: number | undefined
  /** The most characters of a body that are kept; default 16 384. */
  readonly maxBodyChars?: number | undefined
  /** Where the secrets of targets come from; default `process.env`. */
  readonly env?: NodeJS.ProcessEnv | undefined
  /** Resolves the hosts of URLs in requests; default: the system's resolver. */
  readonly lookup?: Lookup | undefined
}

/** The options, checked and complete. */
export interface FetchSettings {
  readonly targets: ReadonlyMap<string, Target>
  readonly allowUrls: boolean
  readonly urlPorts: readonly number[]
  readonly timeoutMs: number
  readonly maxResponseBytes: number
  readonly maxBodyChars: number
  readonly lookup: Lookup
}

const FORM: Form<EgressFetchOptions> = {
  targets: ['an object of targets by their names', isRecord],
  allowUrls: ['true or false', (value) => typeof value === 'boolean'],
  urlPorts: ['ports from 1 to 65535', isListOf(isWhole(1, 65_535))],
  timeoutMs: ['whole milliseconds from 1', isWhole(1, MAX_TIMER_MS)],
  maxResponseBytes: ['a whole number from 0', isWhole(0)],
  maxBodyChars: ['a whole number from 0', isWhole(0)],
  env: ['an object such as process.env', isRecord],
  lookup: ['a function', (value) => typeof value === 'function'],
}

/** @throws InvalidFetchOptionsError naming everything that is wrong */
export function readOptions(options: EgressFetchOptions): FetchSettings {
  const problems: string[] = []
  const targets = readTargets(options, problems)
  fitsForm(FORM, options, problems)
  if (problems.length === 0 && targets.size === 0 && !options.allowUrls) problems.push('expected at least one target')
  if (problems.length > 0) throw new InvalidFetchOptionsError(problems)
  const { allowUrls = false, urlPorts = [443], timeoutMs = 30_000 } = options
  const { maxResponseBytes = 1_048_576, maxBodyChars = 16_384, lookup = lookupAll } = options
  return { targets, allowUrls, urlPorts, timeoutMs, maxResponseBytes, maxBodyChars, lookup }
}

const lookupAll: Lookup = (hostname) => dnsLookup(hostname, { all: true })

function readTargets(options: EgressFetchOptions | undefined, problems: string[]): Map<string, Target> {
  const given: unknown = options?.targets
  const targets = new Map<string, Target>()
  for (const [name, config] of Object.entries(isRecord(given) ? given : {})) {
    const ofTarget: string[] = []
    const target = readTarget(config as TargetConfig, options?.env ?? process.env, ofTarget)
    if (target) targets.set(name, target)
    problems.push(...ofTarget.map((problem) => `target "${name}": ${problem}`))
  }
  return targets
}
