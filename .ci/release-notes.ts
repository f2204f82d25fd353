// Prints the section of CHANGELOG.md about a tag such as v0.1.0, for the page of the release. Fails if the tag is not the
// version of the package, if there is no such section, or if a document still says how to install a package that is not
// published: `node .ci/release-notes.ts v0.1.0`.
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const UNPUBLISHED = /not (on npm|published) yet/

/** @param repository its URL, to which the links of the section are relative; without it they stay as they are */
export function releaseNotes(tag: string, version: string, changelog: string, repository?: string): string {
  if (tag !== `v${version}`) throw new Error(`the tag must be v${version}, the version in package.json; got ${tag}`)
  const heading = `## [${version}] - `
  const section = changelog.split(/^(?=## \[)/m).find((text) => text.startsWith(heading))
  if (!section) throw new Error(`CHANGELOG.md needs a section that begins with '${heading}' and its date; got none`)
  const notes = unwrapped(section.slice(section.indexOf('\n')).trim())
  return repository ? notes.replaceAll(/\]\((?!https?:)/g, `](${repository}/blob/${tag}/`) : notes
}

/** GitHub shows each line break of a release. */
function unwrapped(text: string): string {
  return text.replaceAll(/(?<=\S)\n +(?=[^\s-])/g, ' ')
}

export function checkInstructions(documents: Readonly<Record<string, string>>): void {
  const outdated = Object.entries(documents).find(([, text]) => UNPUBLISHED.test(text))
  if (outdated) throw new Error(`${outdated[0]} says that Sluice is not published yet: docs/development.md, Releases`)
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const read = (name: string) => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8')
  checkInstructions(Object.fromEntries(['README.md', 'docs/start.md'].map((name) => [name, read(name)])))
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = process.env
  const { version } = JSON.parse(read('package.json'))
  const repository = server && name ? `${server}/${name}` : undefined
  console.log(releaseNotes(process.argv[2] ?? '', version, read('CHANGELOG.md'), repository))
}
