import { type Command, InvalidArgumentError } from 'commander'
import type { Redis } from 'ioredis'
import {
  bytesText,
  deleteLibrary,
  functionsBytes,
  isForged,
  isLibraryName,
  type Library,
  type LoadedLibrary,
  loadedLibraries,
  loadLibrary,
  mastersOf,
} from 'sluice/internal'
import { type AddCommand, type Cli, CommandError, EXIT_CODES, type Runner } from '../cli.ts'

export const addCommand: AddCommand = (program, run) => {
  const functions = program
    .command('functions')
    .description('Loads, lists and deletes libraries of Redis Functions, one for each version.')
  addLoad(functions, run)
  addList(functions, run)
  addDelete(functions, run)
}

function addLoad(functions: Command, run: Runner): void {
  functions
    .command('load')
    .description(
      'Loads the library of this version; with --cluster, on all masters. Run it for each new version if your ' +
        "programs' Redis users cannot load it.",
    )
    .action(run(load))
}

function addList(functions: Command, run: Runner): void {
  functions
    .command('list')
    .description("Lists Sluice's libraries, and the memory that functions take.")
    .action(run(list))
}

function addDelete(functions: Command, run: Runner): void {
  functions
    .command('delete')
    .description('Deletes libraries. Programs that still use one load it again, or send the source of their scripts.')
    .argument('[libraries...]', 'their names', collectNames)
    .option('--others', "all but this version's")
    .option('--force', "also this version's, if named")
    .addHelpText(
      'after',
      `
Example:
  $ sluice functions delete --others
`,
    )
    .action(run(deleteThese))
}

function collectNames(text: string, before: readonly string[] | undefined): string[] {
  if (!isLibraryName(text))
    throw new InvalidArgumentError("expected a library of Sluice, such as 'sluice_0123456789ab'")
  return [...(before ?? []), text]
}

async function load(cli: Cli): Promise<void> {
  const { own, servers } = await openedFor(cli)
  const loads = await Promise.allSettled(servers.map((server) => loadOn(server, own)))
  const masters = loads.flatMap((done, i) =>
    done.status === 'fulfilled' ? [{ address: addressOf(servers[i] as Redis), loaded: done.value }] : [],
  )
  const failed = loads.find(({ status }) => status === 'rejected') as PromiseRejectedResult | undefined
  if (failed && masters.length === 0) throw failed.reason
  cli.print({ library: own.name, masters }, () =>
    masters
      .map(({ address, loaded }) => `${address}: ${own.name} ${loaded ? 'is loaded' : 'was loaded before'}`)
      .join('\n'),
  )
  if (failed) throw failed.reason
}

/** @throws CommandError where the name stands for another text */
async function loadOn(server: Redis, own: Library): Promise<boolean> {
  if (await loadLibrary(server, own)) return true
  const [present] = await loadedLibraries(server, own.name)
  if (!present || !isForged(present, own)) return false
  throw new CommandError(
    EXIT_CODES.failed,
    `${own.name} at ${addressOf(server)} is not what this version loads by that name: it was replaced. Run ` +
      `sluice functions delete ${own.name} --force, then load it again (docs/security.md)`,
  )
}

interface ListedLibrary {
  readonly name: string
  readonly isCurrent: boolean
  readonly isForged: boolean
  readonly functions: number
  readonly textBytes: number
  /** How many masters have it. */
  readonly masters: number
}

async function list(cli: Cli): Promise<void> {
  const { own, servers } = await openedFor(cli)
  const found = await Promise.all(servers.map((server) => loadedLibraries(server)))
  const libraries = listed(found, own)
  const memoryBytes = Math.max(...(await Promise.all(servers.map(functionsBytes))))
  cli.print({ current: own.name, libraries, masters: servers.length, memoryBytes }, () => {
    const rows = libraries.map(({ name, functions, textBytes, masters, ...library }) => [
      ...[name, versionText(cli, library), String(functions), bytesText(textBytes)],
      `${masters} of ${servers.length}`,
    ])
    return [
      ...(rows.length > 0 ? [cli.table(['library', 'version', 'functions', 'text', 'masters'], rows)] : []),
      ...(libraries.some(({ isCurrent }) => isCurrent) ? [] : [`that of this version, ${own.name}, is not loaded`]),
      `functions take ${bytesText(memoryBytes)} of memory${servers.length > 1 ? ' at most on a master' : ''}`,
    ].join('\n')
  })
}

/** The same library on several masters is listed once. */
function listed(found: readonly (readonly LoadedLibrary[])[], own: Library): ListedLibrary[] {
  const byName = new Map<string, ListedLibrary>()
  for (const library of found.flat()) {
    const { name, functions, text } = library
    const before = byName.get(name)
    byName.set(name, {
      ...{ name, isCurrent: name === own.name, isForged: before?.isForged || isForged(library, own) },
      ...{ functions, textBytes: Buffer.byteLength(text), masters: (before?.masters ?? 0) + 1 },
    })
  }
  return [...byName.values()]
}

function versionText({ colors }: Cli, library: Pick<ListedLibrary, 'isCurrent' | 'isForged'>): string {
  if (library.isForged) return colors.red('forged')
  return library.isCurrent ? 'this' : 'another'
}

interface DeleteOptions {
  readonly others?: true
  readonly force?: true
}

async function deleteThese(cli: Cli, names: readonly string[] = [], { others, force }: DeleteOptions): Promise<void> {
  if (names.length > 0 === (others === true)) {
    throw new CommandError(EXIT_CODES.usage, 'expected the names of libraries, or --others: exactly one of these')
  }
  const { own, servers } = await openedFor(cli)
  if (names.includes(own.name) && !force) {
    throw new CommandError(EXIT_CODES.usage, `${own.name} is the library of this version: expected --force`)
  }
  const present = new Set((await Promise.all(servers.map((server) => loadedLibraries(server)))).flat().map(nameOf))
  const missing = names.find((name) => !present.has(name))
  if (missing !== undefined) {
    throw new CommandError(EXIT_CODES.notFound, `no library ${missing}: sluice functions list`)
  }
  const deleted = others ? [...present].filter((name) => name !== own.name) : [...new Set(names)]
  for (const name of deleted) await Promise.all(servers.map((server) => deleteLibrary(server, name)))
  cli.print({ deleted }, () => (deleted.length > 0 ? `deleted: ${deleted.join(', ')}` : 'nothing to delete'))
}

const nameOf = ({ name }: Library) => name

async function openedFor(cli: Cli): Promise<{ own: Library; servers: readonly Redis[] }> {
  const servers = mastersOf(await cli.connection())
  // Loaded late, since it needs BullMQ.
  const { installedScripts } = await import('sluice/internal/bullmq')
  return { own: installedScripts().library, servers }
}

function addressOf({ options: { host, port } }: Redis): string {
  return `${host}:${port}`
}
