import { createHash } from 'node:crypto'

/** The tested versions of BullMQ, with the digest of those of their scripts that Sluice composes. */
export const TESTED_BULLMQ: Readonly<Record<string, string>> = {
  '6.5.1': '43fe267a54b2b4f71557d1ba3000b9490c328059',
  '6.5.4': '43fe267a54b2b4f71557d1ba3000b9490c328059',
  '6.7.0': 'c0914a05848d37b6b3a831aca09b0ecb140b674a',
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
