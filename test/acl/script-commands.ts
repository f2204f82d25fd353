import { InvalidInputError } from '../../src/errors.ts'
import { captureBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import { ScriptSet } from '../../src/redis/scripts.ts'

/** The text of every script that Sluice and the installed BullMQ can send, by the names of role-scripts.ts. */
export function scriptTexts(): ReadonlyMap<string, string> {
  const bullmq = captureBullmqScripts()
  return new Map([
    ...[...bullmq.scripts].map(([name, { lua }]) => [`bullmq:${name}`, lua] as const),
    ...new ScriptSet(bullmq, 'acl').texts(),
  ])
}

/**
 * The commands that scripts can call, sorted.
 * @throws InvalidInputError for a script that the installed BullMQ lacks, or a call that cannot be understood
 */
export function commandsOfScripts(names: readonly string[]): string[] {
  const texts = scriptTexts()
  const commands = names.flatMap((name) => {
    const text = texts.get(name)
    if (text === undefined) throw new InvalidInputError(`a role runs the script "${name}", which does not exist`)
    return commandsOfLua(name, text)
  })
  return [...new Set(commands)].toSorted()
}

/** Comments, which mention commands without calling them. */
const COMMENTS = /--\[\[[\s\S]*?\]\]|--.*$/gm
const CALL = /(?<![\w.])(redis\.p?call|r?call|commands\.[A-Z]+)\s*\(\s*([^,)]*)/g
/** `redis.call` assigned to another name, by which it is then called. */
const RENAMED = /^.*\bredis\.p?call\b(?!\s*\().*$/gm
const KNOWN_NAMES = /^\s*(?:local (?:\w+, )*)?r?call(?:, \w+)* = .*\bredis\.call\b/
const LITERAL = /^["'](\w+)["']$/

/** Calls with a command from a variable: its possible values. An unknown call is an error, so that none is missed. */
const NAMED_BY_VARIABLE: Readonly<Record<string, readonly string[]>> = {
  'rcall(pushCmd': ['lpush', 'rpush'],
  // `paginate` of BullMQ: over a set, or over a hash.
  'rcall(command': ['sscan', 'hscan'],
  'rcall(countCommand': ['scard', 'hlen'],
  // `lua/redis/hooked-redis.lua` and its handlers pass on calls of other scripts.
  'call(command': [],
  'call(...': [],
}

/**
 * The commands that a script can call, in lower case and sorted.
 * @throws InvalidInputError for a call whose command cannot be determined
 */
export function commandsOfLua(name: string, lua: string): string[] {
  const code = lua.replace(COMMENTS, '')
  const renamed = [...code.matchAll(RENAMED)].find(([line]) => !KNOWN_NAMES.test(line))
  if (renamed) throw unknown(name, renamed[0].trim())
  const commands = [...code.matchAll(CALL)].flatMap(([, callee, argument = '']) => {
    const literal = LITERAL.exec(argument.trim())?.[1]
    if (literal !== undefined) return [literal.toLowerCase()]
    const call = `${callee}(${argument.trim()}`
    const possible = NAMED_BY_VARIABLE[call]
    if (!possible) throw unknown(name, call)
    return possible
  })
  return [...new Set(commands)].toSorted()
}

function unknown(name: string, call: string): InvalidInputError {
  return new InvalidInputError(
    `script "${name}": cannot tell which commands "${call}" calls; add them to test/acl/script-commands.ts`,
  )
}
