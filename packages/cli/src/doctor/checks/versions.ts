import { TESTED_BULLMQ, UnsupportedVersionError } from 'sluice/internal'
import { captureBullmqScripts, checkBullmqScripts } from 'sluice/internal/bullmq'
import { type Examined, type Finding, Findings, permitted, serverInfo } from '../check.ts'

/** As in `engines` of package.json. */
const LEAST_NODE: readonly [number, number] = [20, 19]
const LEAST_REDIS = 7

/** Whether this version of Sluice supports Node, BullMQ and the server. */
export async function versions({ client }: Examined): Promise<Finding[]> {
  const findings = new Findings('versions')
  const server = await permitted(findings, '+info', async () => [
    redisFinding(findings, await serverInfo(client, 'server')),
  ])
  return [nodeFinding(findings, process.versions.node), bullmqFinding(findings), ...server]
}

export function nodeFinding(findings: Findings, version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const [leastMajor, leastMinor] = LEAST_NODE
  if (major > leastMajor || (major === leastMajor && minor >= leastMinor)) return findings.ok(`Node ${version}`)
  const least = LEAST_NODE.join('.')
  return findings.error(`Node ${version} is too old`, `use Node ${least} or later`)
}

/** The same check that every backend makes when it starts. */
export function bullmqFinding(findings: Findings, scripts = captureBullmqScripts()): Finding {
  const tested = Object.keys(TESTED_BULLMQ).join(', ')
  try {
    const warning = checkBullmqScripts(scripts)
    if (warning !== undefined) return findings.warning(warning, `install one of ${tested}`)
    return findings.ok(`BullMQ ${scripts.version}, whose scripts were tested`)
  } catch (error) {
    if (!(error instanceof UnsupportedVersionError)) throw error
    return findings.error(error.message, `install one of ${tested}`)
  }
}

export function redisFinding(findings: Findings, info: ReadonlyMap<string, string>): Finding {
  const valkey = info.get('valkey_version')
  // Valkey puts the Redis version that it is compatible with into redis_version.
  const version = info.get('redis_version') ?? ''
  const name = valkey === undefined ? `Redis ${version}` : `Valkey ${valkey}`
  if (Number.parseInt(version, 10) >= LEAST_REDIS) return findings.ok(name)
  return findings.error(`${name} is too old, or no Redis`, `use Redis ${LEAST_REDIS} or later, or Valkey 8`)
}
