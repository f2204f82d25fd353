import { createHash } from 'node:crypto'
import { installedScripts } from '../../../src/redis/scripts.ts'

const scripts = installedScripts()

/** The text of a composed script, by BullMQ's name for it or by our file. */
export function textOf(name: string): string {
  const text = scripts.texts().get(name)
  if (text === undefined) throw new Error(`there is no script '${name}'`)
  return text
}

/** Whether a command asks for jobs in free places. */
export function asks(command: readonly string[]): boolean {
  return runs('exchange')(command) && command.includes('free')
}

/** Whether a command ends jobs of a worker's loop. */
export function ends(command: readonly string[]): boolean {
  return runs('exchange')(command) && !command.includes('free')
}

/** Whether a command, as its words are sent, runs a composed script: by its function or, as a text, by that or its digest. */
export function runs(name: string): (command: readonly string[]) => boolean {
  const text = scripts.textSent(name)
  const digest = createHash('sha1').update(text).digest('hex')
  const known: Readonly<Record<string, string>> = { fcall: scripts.functionOf(name), evalsha: digest, eval: text }
  return ([command = '', script]) => script !== undefined && script === known[command.toLowerCase()]
}
