import { commandsOfRole, lackedRights, type Role } from 'sluice/internal'
import { type Examined, type Finding, Findings } from '../check.ts'

/** Whether the user has all the rights of its role. */
export async function rights({ client, prefix, limitsPrefix, role }: Examined): Promise<Finding[]> {
  const findings = new Findings('rights')
  if (role === 'observer') {
    const message = 'an observer may not run EVAL, so its rights cannot be checked one by one'
    return [findings.skipped(message, 'none: a missing right shows up when the observer reads')]
  }
  const limit = `${limitsPrefix}:limit:{sluice-doctor}`
  const base = role === 'limiter' ? limit : `${prefix}:sluice-doctor`
  const commands = commandsOfRole(role)
  const lacked = await lackedRights(base, client, role, commands)
  if (lacked === undefined) {
    return [findings.skipped('this server cannot tell which commands the user may run', 'needs Redis 7 or Valkey 8')]
  }
  if (lacked) return [findings.error(lacked, remedyFor(role))]
  return [findings.ok(`the user has all ${commands.length} rights of a ${role}`)]
}

function remedyFor(role: Role): string {
  return `grant it what docs/acl/${role}.acl lists, with keys under this prefix, or give its actual role with --role`
}
