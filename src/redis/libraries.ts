import { createHash } from 'node:crypto'
import type { Cluster, Redis } from 'ioredis'
import type { Library } from './functions.ts'

/** A library of Sluice, of any version, on a server. */
export interface LoadedLibrary extends Library {
  /** As many as Redis counts. */
  readonly functions: number
}

/** The beginning of each name of a {@link Library}. */
const BEGIN = 'sluice_'
const NAME = /^sluice_[0-9a-f]{12}$/

export function isLibraryName(name: string): boolean {
  return NAME.test(name)
}

/** Stands for a library's name in the text whose digest is the name. */
export const UNNAMED = `${BEGIN}unnamed`

/** @param text with {@link UNNAMED} for its name */
export function namedLibrary(text: string): Library {
  const name = nameOf(text)
  return { name, text: text.replaceAll(UNNAMED, name) }
}

function nameOf(text: string): string {
  return BEGIN + createHash('sha1').update(text).digest('hex').slice(0, 12)
}

/** Whether a loaded library was replaced: its text does not match its name. */
export function isForged({ name, text }: Library, own: Library): boolean {
  return name === own.name ? text !== own.text : name !== nameOf(text.replaceAll(name, UNNAMED))
}

/** The servers that have functions of their own: all masters of a cluster. */
export function mastersOf(client: Redis | Cluster): readonly Redis[] {
  return client.isCluster ? (client as Cluster).nodes('master') : [client as Redis]
}

/** Needs `+function|list`. */
export async function loadedLibraries(server: Redis, pattern = `${BEGIN}*`): Promise<LoadedLibrary[]> {
  const replies = (await server.call('FUNCTION', 'LIST', 'LIBRARYNAME', pattern, 'WITHCODE')) as unknown[][]
  return replies
    .map((reply) => {
      const field = (name: string) => reply[reply.indexOf(name) + 1]
      const functions = (field('functions') as unknown[]).length
      return { name: field('library_name') as string, text: field('library_code') as string, functions }
    })
    .filter(({ name }) => isLibraryName(name))
    .toSorted((one, other) => (one.name < other.name ? -1 : 1))
}

/** @returns whether it was new */
export function loadLibrary(server: Redis, { name, text }: Library): Promise<boolean> {
  return unless(`Library '${name}' already exists`, server.call('FUNCTION', 'LOAD', text))
}

/** @returns whether it existed */
export function deleteLibrary(server: Redis, name: string): Promise<boolean> {
  return unless('Library not found', server.call('FUNCTION', 'DELETE', name))
}

/** Memory of all functions on a server, bytes. */
export async function functionsBytes(server: Redis): Promise<number> {
  const info = await server.info('memory')
  const fields = info.matchAll(/^used_memory(?:_vm)?_functions:(\d+)/gm)
  return [...fields].reduce((sum, [, bytes]) => sum + Number(bytes), 0)
}

async function unless(expected: string, done: Promise<unknown>): Promise<boolean> {
  try {
    await done
    return true
  } catch (error) {
    if ((error as Error).message.includes(expected)) return false
    throw error
  }
}
