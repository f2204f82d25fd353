import {
  bytesText,
  functionsBytes,
  isForged,
  type Library,
  type LoadedLibrary,
  loadedLibraries,
  obstacleOf,
  type ScriptSet,
  UnsupportedVersionError,
} from 'sluice/internal'
import { installedScripts } from 'sluice/internal/bullmq'
import { type Examined, type Finding, Findings, permitted, shownIds } from '../check.ts'

/** It writes nothing, so a replica and a full Redis answer for it too. */
const ANY_FUNCTION = 'find-new'
/** Redis looks for the function first, and runs none with such a number of keys. */
const NO_CALL = '-1'

/**
 * Whether scripts run as Redis Functions, and which libraries of other versions are left. After the canary, whose client
 * loads what its user may load.
 */
export async function functions(examined: Examined): Promise<Finding[]> {
  const findings = new Findings('functions')
  const scripts = scriptsIfSupported()
  if (!scripts || examined.role === 'observer') return []
  const state = await stateFinding(findings, examined, scripts)
  if (state === undefined) {
    const message = 'this server has no functions: scripts run with EVAL, which takes it more time'
    return [findings.note(message, "functions: 'never' spares a refused call each minute")]
  }
  const listing = await permitted(findings, '+function|list, which an operator has', () =>
    libraryFindings(findings, examined, scripts.library),
  )
  return [state, ...listing]
}

/** Otherwise `versions` has said so. */
function scriptsIfSupported(): ScriptSet | undefined {
  try {
    return installedScripts()
  } catch (error) {
    if (error instanceof UnsupportedVersionError) return undefined
    throw error
  }
}

/** undefined: the server has no functions. */
async function stateFinding(
  findings: Findings,
  { client, role }: Examined,
  scripts: ScriptSet,
): Promise<Finding | undefined> {
  const { name } = scripts.library
  const error = await client.call('FCALL', scripts.functionOf(ANY_FUNCTION), NO_CALL).then(
    () => new Error('it has run'),
    (reason: Error) => reason,
  )
  if (error.message.includes('Number of keys')) return findings.ok(`scripts run as functions of the library ${name}`)
  const obstacle = obstacleOf(error)
  if (!obstacle) throw error
  if (obstacle === 'no functions') return undefined
  if (obstacle === 'not loaded') {
    const consequence = 'the scripts of a user that may not load it run with EVAL, which takes Redis more time'
    return findings.note(
      `the library of this version, ${name}, is not loaded: ${consequence}`,
      'sluice functions load, as an operator',
    )
  }
  return findings.note(
    'the user may not call functions: its scripts run with EVAL, which takes Redis more time',
    `grant it +fcall, as docs/acl/${role}.acl does`,
  )
}

async function libraryFindings(findings: Findings, { client }: Examined, own: Library): Promise<Finding[]> {
  const libraries = await loadedLibraries(client)
  const forged = libraries.filter((library) => isForged(library, own))
  const others = libraries.filter((library) => library.name !== own.name && !forged.includes(library))
  return [
    ...forged.map(({ name }) =>
      findings.error(
        `the library ${name} contains other code than its name says: its functions run with the rights of every program that calls them`,
        `find out who may load functions (docs/security.md), then sluice functions delete ${name} --force`,
      ),
    ),
    ...(others.length === 0 ? [] : [othersFinding(findings, others, await functionsBytes(client))]),
  ]
}

function othersFinding(findings: Findings, others: readonly LoadedLibrary[], allBytes: number): Finding {
  const names = others.map(({ name, text }) => `${name} (${bytesText(Buffer.byteLength(text))})`)
  const memory = `all functions take ${bytesText(allBytes)} of memory`
  return findings.note(
    `libraries of other versions are loaded: ${shownIds(names)}; ${memory}`,
    'once no program of these versions runs: sluice functions delete --others',
  )
}
