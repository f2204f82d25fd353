import { readFileSync } from 'node:fs'
import { posix } from 'node:path'

interface Manifest {
  readonly name: string
  readonly exports: Readonly<Record<string, string | { readonly require: { readonly default: string } }>>
  readonly peerDependencies: Readonly<Record<string, string>>
  readonly peerDependenciesMeta: Readonly<Record<string, unknown>>
}

interface Chunk {
  readonly fileName: string
  readonly facadeModuleId?: string | null
  code: string
}

const manifest = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8')) as Manifest

/**
 * A plugin for CommonJS: an entry first tries the optional peers that it loads, and throws one error that names all
 * missing ones. An ES module cannot do this: Node resolves all imports of an entry before it runs any of its code.
 * @param packagesOf what a module and all that it imports load
 */
export function missingPackages(packagesOf: (id: string) => ReadonlySet<string>) {
  return {
    name: 'missing-packages',
    generateBundle(_options: unknown, bundle: Readonly<Record<string, unknown>>): void {
      for (const chunk of Object.values(bundle) as Chunk[]) {
        const entry = entryOf(chunk.fileName)
        if (entry === undefined || !chunk.facadeModuleId) continue
        const optional = [...packagesOf(chunk.facadeModuleId)].filter(
          (from) => nameOf(from) in manifest.peerDependenciesMeta,
        )
        if (optional.length > 0) chunk.code = `${checkOf(entry, optional)}${chunk.code}`
      }
    },
  }
}

/** The name by which a file of `dist` is loaded with `require`. */
function entryOf(fileName: string): string | undefined {
  const [path] =
    Object.entries(manifest.exports).find(
      ([, to]) => typeof to === 'object' && to.require.default === `./dist/${fileName}`,
    ) ?? []
  return path && posix.join(manifest.name, path)
}

/** Bundlers see the calls of `require`, and take one inside `try` to be optional. */
function checkOf(entry: string, optional: readonly string[]): string {
  const tries = optional.map(
    (from) => `  try { require("${from}"); } catch (error) { note(error, "${installed(from)}"); }`,
  )
  return `{
  const missing = new Set();
  const note = ({ code }, name) => code === "MODULE_NOT_FOUND" && missing.add(name);
${tries.join('\n')}
  if (missing.size > 0) {
    const message = "${entry} needs packages that are not installed: npm install " + [...missing].join(" ");
    throw Object.assign(new Error(message), { code: "MODULE_NOT_FOUND" });
  }
}
`
}

/** The package of an import, without the path in it. */
function nameOf(from: string): string {
  return from.split('/', from.startsWith('@') ? 2 : 1).join('/')
}

/** What to install: with a version where only one major version will do. */
function installed(from: string): string {
  const name = nameOf(from)
  const [, major] = /^\^(\d+)\.\d+\.\d+$/.exec(manifest.peerDependencies[name] ?? '') ?? []
  return major === undefined ? name : `${name}@${major}`
}
