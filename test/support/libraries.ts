import { createHash } from 'node:crypto'
import type { Library } from '../../src/redis/functions.ts'

/** A library as another version of Sluice would load it. */
export function libraryOf(version: string): Library {
  const textAs = (name: string) => `#!lua name=${name}
redis.register_function('${name}_version', function() return '${version}' end)`
  const digest = createHash('sha1').update(textAs('sluice')).digest('hex')
  const name = `sluice_${digest.slice(0, 12)}`
  return { name, text: textAs(name) }
}

/** A library that somebody has put in the place of another. */
export function forged({ name }: Library): Library {
  return { name, text: libraryOf('forged').text.replaceAll(libraryOf('forged').name, name) }
}
