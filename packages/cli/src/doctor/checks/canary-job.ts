import { randomBytes } from 'node:crypto'
import { isDenied, type Role } from 'sluice/internal'
import { CANARY, Canary } from '../canary.ts'
import type { Examined } from '../check.ts'
import { type Finding, Findings } from '../finding.ts'

const TIMEOUT_MS = 10_000
const ADD: readonly Role[] = ['producer', 'gateway', 'worker', 'operator']
const RUN: readonly Role[] = ['worker', 'operator']

/** Adds, runs and removes a job with the rights of the user, on a queue of its own that is removed afterwards. */
export async function canaryJob({ client, prefix, role }: Examined): Promise<Finding[]> {
  const findings = new Findings('canary')
  if (!ADD.includes(role))
    return [findings.skipped(`a user of the role ${role} adds no jobs`, 'none: it needs no more')]
  const name = `${CANARY}${randomBytes(6).toString('hex')}`
  const connection = client.duplicate({ maxRetriesPerRequest: null })
  connection.on('error', () => {})
  const canary = new Canary({ name, prefix, connection, timeoutMs: TIMEOUT_MS })
  const found: Finding[] = []
  try {
    await canary.add()
    if (RUN.includes(role)) await canary.run()
    found.push(findings.ok(`a job was ${RUN.includes(role) ? 'added, started, finished' : 'added'} and removed`))
  } catch (error) {
    const remedy = isDenied(error)
      ? `grant the user what docs/acl/${role}.acl lists, or give its actual role with --role`
      : 'mend first what is found of this Redis'
    found.push(findings.error(`a job could not ${canary.step}: ${(error as Error).message}`, remedy))
  }
  const left = await canary.close().finally(() => connection.disconnect())
  if (left === 0) return found
  const remedy = `remove the keys that are left under ${prefix}:${name}:*`
  return [...found, findings.error(`the user may not remove keys: ${left} of the canary's are left`, remedy)]
}
