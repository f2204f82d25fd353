import { lookup as dnsLookup } from 'node:dns/promises'
import { InvalidFetchOptionsError } from './errors.ts'
import { readTarget, type Target, type TargetConfig } from './target.ts'

/** Resolves a host name to all of its addresses; rejects when it has none. */
export type Lookup = (hostname: string) => Promise<readonly { readonly address: string; readonly family: number }[]>

export interface EgressFetchOptions {
  /** Where requests may go, by name. */
  readonly targets?: Readonly<Record<string, TargetConfig>> | undefined
  /** Also take URLs from requests: https only, to public addresses only. Default false. */
  readonly allowUrls?: boolean | undefined
  /** The ports that such URLs may have; default 443. */
  readonly urlPorts?: readonly number[] | undefined
  /** Time for one attempt, from the name's lookup to the end of the answer, ms; default 30 000. */
  readonly timeoutMs?: number | undefined
  /** Bytes of an answer's body that are read at most; default 1 MiB. */
  readonly maxResponseBytes?: number | undefined
  /** Characters of a body that are kept at most; default 16 384. */
  readonly maxBodyChars?: number | undefined
  /** Where the secrets of targets are; default `process.env`. */
  readonly env?: NodeJS.ProcessEnv | undefined
  /** Resolves the hosts of URLs that requests bring; default: the system's resolver. */
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

const MAX_TIMEOUT_MS = 2 ** 31 - 1

/** @throws InvalidFetchOptionsError naming everything that is wrong */
export function readOptions(options: EgressFetchOptions): FetchSettings {
  const { env = process.env, lookup = (hostname) => dnsLookup(hostname, { all: true }) } = options
  const problems: string[] = []
  const targets = new Map<string, Target>()
  for (const [name, config] of Object.entries(options.targets ?? {})) {
    const ofTarget: string[] = []
    const target = readTarget(config, env, ofTarget)
    if (target) targets.set(name, target)
    problems.push(...ofTarget.map((problem) => `target "${name}": ${problem}`))
  }
  const { allowUrls = false, urlPorts = [443], timeoutMs = 30_000 } = options
  const { maxResponseBytes = 1_048_576, maxBodyChars = 16_384 } = options
  if (targets.size === 0 && !allowUrls && problems.length === 0) problems.push('expected at least one target')
  if (!urlPorts.every((port) => isWhole(port, 1, 65_535))) problems.push('urlPorts: expected ports from 1 to 65535')
  if (!isWhole(timeoutMs, 1, MAX_TIMEOUT_MS)) problems.push('timeoutMs: expected whole milliseconds from 1')
  if (!isWhole(maxResponseBytes, 0)) problems.push('maxResponseBytes: expected a whole number from 0')
  if (!isWhole(maxBodyChars, 0)) problems.push('maxBodyChars: expected a whole number from 0')
  if (problems.length > 0) throw new InvalidFetchOptionsError(problems)
  return { targets, allowUrls, urlPorts, timeoutMs, maxResponseBytes, maxBodyChars, lookup }
}

function isWhole(value: number, min: number, max: number = Number.MAX_SAFE_INTEGER): boolean {
  return Number.isSafeInteger(value) && value >= min && value <= max
}
