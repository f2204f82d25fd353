import { createHash } from 'node:crypto'
import type { Redis } from 'ioredis'
import { ShapedQueue } from 'sluice'

const sha1 = (text: Buffer): string => createHash('sha1').update(text).digest('hex')

/** `moveToActive:6.7.0`, or `sluice:1.0.0:6.7.0:moveToActive` */
const NAME_OF_COMMAND = /^(?:sluice:[^:]+:[^:]+:)?([^:]+)/

/**
 * The names of BullMQ's and our scripts by the SHA-1 of their text, with which EVALSHA calls them: a shaped queue defines
 * all of them on its client, ours without comments, as in the package.
 */
export async function scriptNames(client: Redis): Promise<ReadonlyMap<string, string>> {
  const connection = client.duplicate({ maxRetriesPerRequest: null })
  const queue = new ShapedQueue('script-names', { connection, skipMetasUpdate: true })
  await queue.waitUntilReady()
  const scripts = Object.entries(connection.scriptsSet as Readonly<Record<string, { sha: string }>>)
  await queue.close()
  connection.disconnect()
  return new Map(scripts.map(([command, { sha }]) => [sha, NAME_OF_COMMAND.exec(command)?.[1] as string]))
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', a: '\x07', b: '\b' }

/** The bytes of a text as shown by MONITOR, which escapes all but plain ASCII. */
function unescaped(text: string): Buffer {
  const plain = text.replace(/\\(?:x([\da-f]{2})|(.))/g, (_all, hex: string | undefined, character: string) =>
    hex ? String.fromCharCode(Number.parseInt(hex, 16)) : (ESCAPES[character] ?? character),
  )
  return Buffer.from(plain, 'latin1')
}

/**
 * The name of the script that an EVALSHA or EVAL runs, from MONITOR's output; undefined for any other command.
 * @throws Error for a script without a name: its calls would be missing from a figure
 */
export function scriptOf(args: readonly string[], names: ReadonlyMap<string, string>): string | undefined {
  const command = args[0]?.toLowerCase()
  if (command !== 'evalsha' && command !== 'eval') return undefined
  const sha = command === 'eval' ? sha1(unescaped(args[1] as string)) : (args[1] as string)
  const name = names.get(sha)
  if (name === undefined) throw new Error(`MONITOR shows the script ${sha}, which no queue defines`)
  return name
}
