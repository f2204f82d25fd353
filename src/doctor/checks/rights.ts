import type { Redis } from 'ioredis'
import { commandsOfRole } from '../../acl/acl-line.ts'
import type { Role } from '../../acl/roles.ts'
import type { Examined } from '../check.ts'
import { type Finding, Findings } from '../finding.ts'
import { isDenied } from '../permission.ts'

/**
 * A script can ask what its user may run, without running it (redis.acl_check_cmd, since 7.0). Returns the indices of
 * denied commands, from 1; null on a server where it cannot ask.
 */
const MAY_NOT = `
if not redis.acl_check_cmd then return false end
local denied = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do
  local known, allowed = pcall(redis.acl_check_cmd, unpack(command))
  if not known or not allowed then denied[#denied + 1] = i end
end
return denied`

/**
 * Whether the user has all the rights of its role, checked one command at a time. A script that lacks one fails midway,
 * and Redis does not roll back its writes: jobs would be in no state at all.
 */
export function rights({ client, prefix, limitsPrefix, role }: Examined): Promise<Finding[]> {
  const limit = `${limitsPrefix}:limit:{sluice-doctor}`
  return rightsOn(role === 'limiter' ? limit : `${prefix}:sluice-doctor`, client, role, commandsOfRole(role))
}

/**
 * Programs start without these. Scripts of a user that may not call functions take longer; without WAIT no acceptance is
 * confirmed (`durability`), and the jobs are stored all the same; who may not list clients names none that bypass the
 * meter.
 */
const DONE_WITHOUT = ['wait', 'client|info', 'client|list', 'fcall']

/**
 * Whether the user has the rights without which its role fails.
 * @param base of the keys that the role works on, without a colon at its end
 */
export function neededRights(base: string, client: Redis, role: Role): Promise<Finding[]> {
  return rightsOn(
    base,
    client,
    role,
    commandsOfRole(role).filter((command) => !DONE_WITHOUT.includes(command)),
  )
}

async function rightsOn(base: string, client: Redis, role: Role, commands: readonly string[]): Promise<Finding[]> {
  const findings = new Findings('rights')
  if (role === 'observer') {
    const message = 'an observer runs no scripts, so its rights cannot be checked one by one'
    return [findings.skipped(message, 'none: a missing right shows up when the observer reads')]
  }
  const key = role === 'limiter' ? base : `${base}:meta:wake`
  const channel = role === 'limiter' ? `${base}:wake` : key
  try {
    const denied = await deniedOf(
      client,
      commands.map((command) => exampleOf(command, key, channel)),
    )
    if (!denied) {
      return [findings.skipped('this server cannot tell which commands the user may run', 'needs Redis 7 or Valkey 8')]
    }
    if (denied.length === 0) return [findings.ok(`the user has all ${commands.length} rights of a ${role}`)]
    const names = denied.map((place) => `+${commands[place - 1]}`).join(' ')
    return [findings.error(`the user lacks rights of a ${role}: ${names}`, remedyFor(role))]
  } catch (error) {
    if (!isDenied(error)) throw error
    return [findings.error(`the user lacks a right of a ${role}: ${error.message}`, remedyFor(role))]
  }
}

function remedyFor(role: Role): string {
  return `grant it what docs/acl/${role}.acl lists, with keys under this prefix, or give its actual role with --role`
}

function deniedOf(client: Redis, examples: readonly (readonly string[])[]): Promise<number[] | null> {
  return client.eval(MAY_NOT, 0, JSON.stringify(examples)) as Promise<number[] | null>
}

/** A call of a command in which Redis finds the keys. It is not run. */
function exampleOf(command: string, key: string, channel: string): string[] {
  const words = command.split('|')
  switch (command) {
    case 'eval':
    case 'evalsha':
    case 'fcall':
      return [command, '', '1', key]
    case 'publish':
      return [command, channel, '']
    case 'subscribe':
      return [command, channel]
    case 'bzpopmin':
      return [command, key, '0']
    case 'xread':
      return [command, 'STREAMS', key, '$']
    case 'lmove':
      return [command, key, key, 'LEFT', 'RIGHT']
    default:
      return words.length > 1 ? [...words, ''] : [command, key, key]
  }
}
