import { readFileSync, rmSync } from 'node:fs'
import { join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Application, Converter, ReflectionKind } from 'typedoc'
import { MarkdownPageEvent } from 'typedoc-plugin-markdown'

// Writes docs/api, which is not committed: a page for each entry of the packages, and one for each of its classes, from the
// types and their comments.

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const OUT = join(ROOT, 'docs', 'api')

/** The sources of the entries, by the names that they are imported by; not those for other packages of ours alone. */
const { paths } = JSON.parse(readFileSync(join(ROOT, 'tsconfig.json'), 'utf8')).compilerOptions
const entries = Object.entries(paths).filter(([name]) => !/\/(internal|program)\b|^sluice-programs$/.test(name))
const names = new Map(entries.map(([name, [file]]) => [posix.dirname(file.slice(2)), name]))

const app = await Application.bootstrapWithPlugins({
  plugin: ['typedoc-plugin-markdown'],
  entryPoints: entries.map(([, [file]]) => join(ROOT, file)),
  basePath: ROOT,
  displayBasePath: ROOT,
  tsconfig: join(ROOT, 'site', 'tsconfig.json'),
  name: 'The entries of the packages',
  readme: 'none',
  entryFileName: 'index',
  router: 'member',
  membersWithOwnFile: ['Class'],
  excludeInternal: true,
  excludePrivate: true,
  excludeProtected: true,
  disableSources: true,
  groupOrder: ['Functions', 'Classes', 'Interfaces', 'Type Aliases', 'Constructors', 'Methods', 'Properties', '*'],
  hideBreadcrumbs: true,
  hidePageHeader: true,
  useCodeBlocks: true,
  parametersFormat: 'table',
  interfacePropertiesFormat: 'table',
  classPropertiesFormat: 'table',
  out: OUT,
  treatWarningsAsErrors: true,
})

/** Of each class, what it inherits from BullMQ. */
const inherited = new Map()

app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
  for (const type of project.getReflectionsByKind(ReflectionKind.ClassOrInterface)) {
    const theirs = (type.children ?? []).filter(({ flags }) => flags.isExternal)
    const bullmq = theirs.filter((it) => project.getSymbolIdFromReflection(it)?.packageName === 'bullmq')
    inherited.set(type, bullmq.map(nameOf).toSorted())
    for (const member of theirs) project.removeReflection(member)
  }
  // Modules are named as they are imported, not by their folders.
  for (const module of project.getReflectionsByKind(ReflectionKind.Module)) {
    module.name = names.get(module.name.replace(/\/index$/, '')) ?? module.name
  }
})

function nameOf({ name, kind }) {
  return kind === ReflectionKind.Method ? `${name}()` : name
}

app.renderer.on(MarkdownPageEvent.END, (page) => {
  const names = inherited.get(page.model) ?? []
  if (names.length === 0) return
  page.contents += `\n<details>\n<summary>Inherited from BullMQ: ${names.length}</summary>\n\n`
  page.contents += `${names.map((name) => `\`${name}\``).join(', ')}\n\n</details>\n`
})

const project = await app.convert()
if (project) {
  rmSync(OUT, { recursive: true, force: true })
  await app.generateOutputs(project)
}
const { errorCount, warningCount } = app.logger
if (!project || errorCount + warningCount > 0) {
  console.error(
    `error: the pages of the types cannot be built: ${errorCount} errors and ${warningCount} warnings, see above. ` +
      'A warning counts as an error: mend the comment in src/ that it names.',
  )
  process.exitCode = 1
}
