import { createHash } from 'node:crypto'
import { captureBullmqScripts } from '../../../src/redis/bullmq-scripts.ts'
import { ScriptSet } from '../../../src/redis/scripts.ts'
import { VERSION } from '../../../src/version.ts'

const scripts = new ScriptSet(captureBullmqScripts(), VERSION)

/** The text of a composed script, by BullMQ's name for it or by our file. */
export function textOf(name: string): string {
  const text = name === 'admit-flow' ? scripts.admitFlowText() : scripts.definitions().get(name)?.lua
  if (text === undefined) throw new Error(`there is no script '${name}'`)
  return text
}

/** Whether a command, as its words are sent, runs a composed script: by digest or, the first time, by text. */
export function runs(name: string): (command: readonly string[]) => boolean {
  const text = textOf(name)
  const digest = createHash('sha1').update(text).digest('hex')
  return ([command, script]) => {
    if (/^evalsha$/i.test(command ?? '')) return script === digest
    return /^eval$/i.test(command ?? '') && script === text
  }
}
