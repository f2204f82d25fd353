// Prints the section of CHANGELOG.md about a tag such as v0.1.0. Fails if the tag is not the version of the package, or
// if there is no such section: `node .ci/release-notes.ts v0.1.0`.
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export function releaseNotes(tag: string, version: string, changelog: string): string {
  if (tag !== `v${version}`) throw new Error(`the tag must be v${version}, the version in package.json; got ${tag}`)
  const heading = `## [${version}] - `
  const section = changelog.split(/^(?=## \[)/m).find((text) => text.startsWith(heading))
  if (!section) throw new Error(`CHANGELOG.md needs a section that begins with '${heading}' and its date; got none`)
  return section.slice(section.indexOf('\n')).trim()
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const read = (name: string) => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8')
  const { version } = JSON.parse(read('package.json'))
  console.log(releaseNotes(process.argv[2] ?? '', version, read('CHANGELOG.md')))
}
