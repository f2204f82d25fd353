import { isIP } from 'node:net'
import type { Redis } from 'ioredis'
import { isDenied } from 'sluice/internal'
import { type Examined, type Finding, Findings } from '../check.ts'

/** Which user is used, and whether the traffic is encrypted. */
export async function access({ client }: Examined): Promise<Finding[]> {
  const findings = new Findings('access')
  return [await userFinding(findings, client), transportFinding(findings, client)]
}

async function userFinding(findings: Findings, client: Redis): Promise<Finding> {
  try {
    const user = (await client.call('ACL', 'WHOAMI')) as string
    if (user !== 'default') return findings.ok(`the user is "${user}"`)
    return findings.warning(
      'the user is "default", which may do everything',
      'give each program a user of its role, from node_modules/sluice/docs/acl',
    )
  } catch (error) {
    if (!isDenied(error)) throw error
    return findings.ok('the user may not run ACL WHOAMI, so its rights are restricted')
  }
}

function transportFinding(findings: Findings, { options, isCluster }: Redis): Finding {
  const { host = '', path, tls } = isCluster ? {} : options
  if (tls) return findings.ok('the connection is encrypted')
  if (path || isLoopback(host)) return findings.ok('the connection does not leave this machine')
  const message = 'the connection is not encrypted: its password and the jobs can be read on the way'
  return findings.warning(message, 'use rediss://, or a private network')
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))
}
