import { InvalidInputError } from '../errors.ts'
import { captureBullmqScripts } from '../redis/bullmq-scripts.ts'
import { LIMIT_SCRIPTS, limitScript, ScriptSet } from '../redis/scripts.ts'
import { commandsOfLua } from './lua-commands.ts'

/** The text of every script that Sluice and the installed BullMQ can send, by the names of role-scripts.ts. */
export function scriptTexts(): ReadonlyMap<string, string> {
  const bullmq = captureBullmqScripts()
  const own = new ScriptSet(bullmq, 'acl')
  return new Map([
    ...[...bullmq.scripts].map(([name, { lua }]) => [`bullmq:${name}`, lua] as const),
    ...[...own.definitions()].map(([name, { lua }]) => [name, lua] as const),
    ['admit-flow', own.admitFlowText()] as const,
    ...LIMIT_SCRIPTS.map((name) => [`limit:${name}`, limitScript(name)] as const),
  ])
}

/**
 * The commands that scripts can call, sorted.
 * @throws InvalidInputError for a script that the installed BullMQ lacks, or a call that can not be understood
 */
export function commandsOfScripts(names: readonly string[], texts = scriptTexts()): string[] {
  const commands = names.flatMap((name) => {
    const text = texts.get(name)
    if (text === undefined) throw new InvalidInputError(`a role runs the script "${name}", which does not exist`)
    return commandsOfLua(name, text)
  })
  return [...new Set(commands)].toSorted()
}
