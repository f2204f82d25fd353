import { createHash } from 'node:crypto'
import { captureBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import { ScriptSet } from '../../src/redis/scripts.ts'
import { VERSION } from '../../src/version.ts'

const sha1 = (text: string | Buffer): string => createHash('sha1').update(text).digest('hex')

/** The names of BullMQ's and our scripts by the SHA-1 of their text, with which EVALSHA calls them. */
export function scriptNames(): ReadonlyMap<string, string> {
  const bullmq = captureBullmqScripts()
  const all = [...bullmq.scripts, ...new ScriptSet(bullmq, VERSION).definitions()]
  return new Map(all.map(([name, { lua }]) => [sha1(lua), name]))
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', a: '\x07', b: '\b' }

/** The bytes of a text as shown by MONITOR, which escapes all but plain ASCII. */
function unescaped(text: string): Buffer {
  const plain = text.replace(/\\(?:x([\da-f]{2})|(.))/g, (_all, hex: string | undefined, character: string) =>
    hex ? String.fromCharCode(Number.parseInt(hex, 16)) : (ESCAPES[character] ?? character),
  )
  return Buffer.from(plain, 'latin1')
}

/** The name of the script that an EVALSHA or EVAL runs, from MONITOR's output; undefined for any other command. */
export function scriptOf(args: readonly string[], names: ReadonlyMap<string, string>): string | undefined {
  const command = args[0]?.toLowerCase()
  if (command !== 'evalsha' && command !== 'eval') return undefined
  const sha = command === 'eval' ? sha1(unescaped(args[1] as string)) : (args[1] as string)
  return names.get(sha) ?? `unknown script ${sha}`
}
