import { InvalidInputError } from '../../src/errors.ts'
import type { Role } from '../../src/redis/role-commands.ts'
import { ROLE_NEEDS, ROLES } from './roles.ts'
import { commandsOfScripts } from './script-commands.ts'

/** The commands of a role, in lower case and sorted: those of its scripts and those of its clients. */
function commandsOf(role: Role): string[] {
  const { scripts, commands } = ROLE_NEEDS[role]
  return [...new Set([...commandsOfScripts(scripts), ...commands])].toSorted()
}

/** The text of src/redis/role-commands.ts. */
export function roleCommands(): string {
  const lines = ROLES.map((role) => `  ${role}:\n    '${commandsOf(role).join(' ')}',\n`)
  return `// Written by \`npm run acl\`: no program has to search the scripts for it.

/** The commands that each role sends, itself and in its scripts, in lower case; \`client|setname\` is a subcommand. */
export const ROLE_COMMANDS = {
${lines.join('')}}

/** The kind of a program, as Redis sees it. */
export type Role = keyof typeof ROLE_COMMANDS
`
}

/**
 * The line of an ACL file that creates a role's user, with the placeholders `{prefix}`, `{limits}` and `{sha256}` (of
 * the password, hex). It begins with a reset, so that it can be given to ACL SETUSER again.
 */
export function aclTemplate(role: Role): string {
  const { keys, channels } = ROLE_NEEDS[role]
  const rules = [
    ...['reset', 'on', '#{sha256}', ...keys, ...channels.map((channel) => `&${channel}`), '-@all'],
    ...commandsOf(role).map((command) => `+${command}`),
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
