import type { Redis } from 'ioredis'
import { isDenied } from './failures.ts'
import { ROLE_COMMANDS, type Role } from './role-commands.ts'

export const ROLES = Object.keys(ROLE_COMMANDS) as readonly Role[]

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
 * Programs start without these. Scripts of a user that may not call functions take longer; without WAIT no acceptance is
 * confirmed (`durability`), and the jobs are stored all the same; who may not list clients names none that bypass the
 * meter.
 */
const DONE_WITHOUT = ['wait', 'client|info', 'client|list', 'fcall']

/** Every command that a role sends, itself or in a script: those that its line of `docs/acl` allows. */
export function commandsOfRole(role: Role): readonly string[] {
  return ROLE_COMMANDS[role].split(' ')
}

/** The commands without which a role fails. */
export function neededCommands(role: Role): readonly string[] {
  return commandsOfRole(role).filter((command) => !DONE_WITHOUT.includes(command))
}

/**
 * Which of these commands of a role the user may not run, checked one at a time. A script that lacks one fails midway,
 * and Redis does not roll back its writes: jobs would be in no state at all.
 * @param base of the keys that the role works on, without a colon at its end
 * @returns the sentence that says so, '' if it may run all, or undefined where the server cannot tell
 */
export async function lackedRights(
  base: string,
  client: Redis,
  role: Role,
  commands: readonly string[],
): Promise<string | undefined> {
  const key = role === 'limiter' ? base : `${base}:meta:wake`
  const channel = role === 'limiter' ? `${base}:wake` : key
  try {
    const examples = commands.map((command) => exampleOf(command, key, channel))
    const denied = (await client.eval(MAY_NOT, 0, JSON.stringify(examples))) as number[] | null
    if (!denied) return undefined
    const names = denied.map((place) => `+${commands[place - 1]}`).join(' ')
    return names && `the user lacks rights of a ${role}: ${names}`
  } catch (error) {
    if (!isDenied(error)) throw error
    return `the user lacks a right of a ${role}: ${error.message}`
  }
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
