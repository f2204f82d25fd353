import { InvalidInputError } from '../errors.ts'
import { ROLE_NEEDS, type Role } from './roles.ts'
import { commandsOfScripts } from './script-commands.ts'

/** By role. Scripts stay the same while a process runs, and searching all of a role takes tenths of a second. */
const known = new Map<Role, readonly string[]>()

/** The commands of a role, in lower case and sorted: those of its scripts and those of its clients. */
export function commandsOfRole(role: Role): readonly string[] {
  const { scripts, commands } = ROLE_NEEDS[role]
  const all = known.get(role) ?? [...new Set([...commandsOfScripts(scripts), ...commands])].toSorted()
  known.set(role, all)
  return all
}

/**
 * The line of an ACL file that creates a role's user, with the placeholders `{prefix}`, `{limits}` and `{sha256}` (of
 * the password, hex). It begins with a reset, so that it can be given to ACL SETUSER again.
 */
export function aclTemplate(role: Role): string {
  const { keys, channels } = ROLE_NEEDS[role]
  const rules = [
    ...['reset', 'on', '#{sha256}', ...keys, ...channels.map((channel) => `&${channel}`), '-@all'],
    ...commandsOfRole(role).map((command) => `+${command}`),
  ]
  return `user sluice-${role} ${rules.join(' ')}`
}

/** The values for the placeholders of a template. */
export interface AclPlaces {
  /** The prefix of the queues, as BullMQ takes it. */
  readonly prefix: string
  /** The prefix of limits. Default `sluice`. */
  readonly limits?: string
  /** The SHA-256 of the password, hex. */
  readonly sha256: string
}

/**
 * Fills in the placeholders of a template.
 * @throws InvalidInputError for a prefix that is empty or has blanks, and for anything but a SHA-256 in hex
 */
export function renderAcl(template: string, { prefix, limits = 'sluice', sha256 }: AclPlaces): string {
  if (!/^[0-9a-f]{64}$/.test(sha256)) throw new InvalidInputError('sha256 must be 64 hexadecimal digits in lower case')
  const places: Readonly<Record<string, string>> = { prefix: pattern(prefix), limits: pattern(limits), sha256 }
  return template.replaceAll(/\{(prefix|limits|sha256)\}/g, (_place, name: string) => places[name] as string)
}

/** A pattern that matches this prefix only. */
function pattern(prefix: string): string {
  if (prefix === '' || /\s/.test(prefix)) {
    throw new InvalidInputError(`a prefix in an ACL must have no blanks; got ${JSON.stringify(prefix)}`)
  }
  return prefix.replaceAll(/[*?[\]\\]/g, '\\$&')
}
