import { isUtf8 } from 'node:buffer'
import { ProblemError } from '../responses/problem.ts'

const QUOTE = 0x22
const BACKSLASH = 0x5c
const [OPENING_BRACKET, OPENING_BRACE] = [0x5b, 0x7b]
const [CLOSING_BRACKET, CLOSING_BRACE] = [0x5d, 0x7d]

/**
 * Parses JSON from untrusted clients. Refuses what would be misread or would harm a later reader: bytes that are not
 * UTF-8, values nested too deeply, keys that could pollute prototypes, numbers that overflow to Infinity. Numbers are
 * read as doubles, and the last of duplicate keys counts; I-JSON (RFC 7493) has no larger numbers and no duplicates.
 * @throws ProblemError 400
 */
export function parseJson(bytes: Uint8Array, maxDepth: number): unknown {
  // Before parsing: a recursive walk through a deep value would endanger the process, not only the request.
  if (isDeeper(bytes, maxDepth)) throw malformed(`is nested deeper than ${maxDepth} levels`)
  const value = parsed(decoded(bytes))
  checkTree(value)
  return value
}

/** Counts brackets outside of strings. The parser checks whether they match. */
function isDeeper(bytes: Uint8Array, maxDepth: number): boolean {
  let depth = 0
  let inString = false
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] as number
    if (inString) {
      if (byte === BACKSLASH) i++
      else if (byte === QUOTE) inString = false
    } else if (byte === QUOTE) inString = true
    else if (byte === OPENING_BRACE || byte === OPENING_BRACKET) {
      if (++depth > maxDepth) return true
    } else if (byte === CLOSING_BRACE || byte === CLOSING_BRACKET) depth--
  }
  return false
}

/** Keeps a byte order mark, which the parser then refuses. (RFC 8259, section 8.1) */
function decoded(bytes: Uint8Array): string {
  if (!isUtf8(bytes)) throw malformed('is not UTF-8')
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // The parser's message repeats the input.
    throw malformed('is not JSON')
  }
}

function checkTree(root: unknown): void {
  const left: unknown[] = [root]
  while (left.length > 0) {
    const value = left.pop()
    if (typeof value === 'number' && !Number.isFinite(value)) throw malformed('has a number that is out of range')
    if (typeof value !== 'object' || value === null) continue
    if (!Array.isArray(value)) checkKeys(value)
    for (const inner of Object.values(value)) left.push(inner)
  }
}

function checkKeys(value: object): void {
  if (Object.hasOwn(value, '__proto__')) throw malformed("has a key '__proto__'")
  if (!Object.hasOwn(value, 'constructor')) return
  const { constructor: inner } = value as { constructor: unknown }
  if (typeof inner === 'object' && inner !== null && Object.hasOwn(inner, 'prototype')) {
    throw malformed("has a key 'constructor' with a 'prototype'")
  }
}

function malformed(what: string): ProblemError {
  return new ProblemError(400, `The body ${what}.`)
}
