import { createHash } from 'node:crypto'
import type { Redis } from 'ioredis'
import { ShapedQueue } from 'sluice'

const sha1 = (text: Buffer): string => createHash('sha1').update(text).digest('hex')

/** `moveToActive:6.7.0`, or `sluice:1.0.0:6.7.0:moveToActive` */
const NAME_OF_COMMAND = /^(?:sluice:[^:]+:[^:]+:)?([^:]+)/

/**
 * The names of BullMQ's and our scripts by what calls them: BullMQ's by the SHA-1 of their text, ours by their function,
 * without the name of the library. A shaped queue defines all of them on its client.
 */
export async function scriptNames(client: Redis): Promise<ReadonlyMap<string, string>> {
  const connection = client.duplicate({ maxRetriesPerRequest: null })
  const queue = new ShapedQueue('script-names', { connection, skipMetasUpdate: true })
  await queue.waitUntilReady()
  const scripts = Object.entries(connection.scriptsSet as Readonly<Record<string, { sha: string }>>)
  await queue.close()
  connection.disconnect()
  return new Map(
    scripts.map(([command, { sha }]) => {
      const name = NAME_OF_COMMAND.exec(command)?.[1] as string
      return [command.startsWith('sluice:') ? name.replaceAll('-', '_') : sha, name]
    }),
  )
}

/** What {@link scriptNames} knows a function by. */
export function ownName(functionName: string): string {
  return functionName.replace(/^sluice_[\da-f]+_/, '')
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
 * The name of the script that an FCALL, EVALSHA or EVAL runs, from MONITOR's output; undefined for any other command.
 * @throws Error for a script without a name: its calls would be missing from a figure
 */
export function scriptOf(args: readonly string[], names: ReadonlyMap<string, string>): string | undefined {
  const command = args[0]?.toLowerCase()
  const [, script = ''] = args
  const keys: Readonly<Record<string, (text: string) => string>> = {
    fcall: ownName,
    evalsha: (sha) => sha,
    eval: (text) => sha1(unescaped(text)),
  }
  const keyOf = keys[command ?? '']
  if (!keyOf) return undefined
  const name = names.get(keyOf(script))
  if (name === undefined) throw new Error(`MONITOR shows the script ${script.slice(0, 60)}, which no queue defines`)
  return name
}
