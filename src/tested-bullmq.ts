import { createHash } from 'node:crypto'

/** The versions of BullMQ that Sluice was tested with, and the digest of those scripts of theirs that it composes. */
export const TESTED_BULLMQ: Readonly<Record<string, string>> = {
  '6.5.1': '9f79d7116ae2d7ea745d616ad3d357e1230d96f2',
  '6.5.4': '9f79d7116ae2d7ea745d616ad3d357e1230d96f2',
  '6.7.0': '08ba14d5935e5d40d7f9228051b9cd65972a726a',
}

/** One digest over the named scripts: text and number of keys. */
export function scriptsDigest(
  scripts: ReadonlyMap<string, { readonly lua: string; readonly numberOfKeys: number }>,
  names: readonly string[],
): string {
  const hash = createHash('sha1')
  for (const name of [...names].sort()) {
    const script = scripts.get(name)
    hash.update(`${name}\0${script?.numberOfKeys}\0${script?.lua}\0`)
  }
  return hash.digest('hex')
}
