import { isInnerList, parseList } from 'structured-headers'

/** One item of a field, with bytes in hex. */
export interface ReadItem {
  readonly name: unknown
  readonly [parameter: string]: unknown
}

/** A field as a reader of RFC 9651 understands it; none for a field that is not there. */
export function readList(text: string | undefined): ReadItem[] {
  if (text === undefined) return []
  return parseList(text).map((item) => {
    if (isInnerList(item)) throw new Error(`an inner list has no place in ${text}`)
    const [name, parameters] = item
    const read = [...parameters].map(
      ([key, value]) => [key, value instanceof ArrayBuffer ? hex(value) : value] as const,
    )
    return { name, ...Object.fromEntries(read) }
  })
}

export function hex(bytes: ArrayBuffer | Uint8Array): string {
  return Buffer.from(bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : bytes).toString('hex')
}
