import type { Library } from '../../src/redis/functions.ts'
import { namedLibrary, UNNAMED } from '../../src/redis/libraries.ts'

/** A library as another version of Sluice would load it. */
export function libraryOf(version: string): Library {
  return namedLibrary(`#!lua name=${UNNAMED}
redis.register_function('${UNNAMED}_version', function() return '${version}' end)`)
}

/** A library that somebody has put in the place of another. */
export function forged({ name }: Library): Library {
  return { name, text: libraryOf('forged').text.replaceAll(libraryOf('forged').name, name) }
}
