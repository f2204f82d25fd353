import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig, type Plugin } from 'vitepress'
import llmstxt from 'vitepress-plugin-llms'
import { LinkedFiles } from './linked-files.ts'
import { searchOptions } from './search-options.mjs'
import { sidebar } from './sidebar.ts'

const linkedFiles = new LinkedFiles()
const { name, version, exports, repository } = JSON.parse(
  readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
)

export default defineConfig({
  title: 'Sluice',
  description: 'Traffic shaping for BullMQ',
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: '/logo.svg' }]],
  cleanUrls: true,
  srcDir: '../docs',
  cacheDir: '../.cache/vitepress',
  markdown: { anchor: { slugify: githubSlug }, config: linkedFiles.rewriteLinks },
  buildEnd: linkedFiles.copy,
  themeConfig: {
    logo: '/logo.svg',
    nav: [
      ...sidebar.map(({ text, items }) => ({ text, link: items[0]?.link ?? '/' })),
      { text: `v${version}`, link: '/compatibility' },
    ],
    sidebar: sidebar.flatMap((group) => (group.text === 'Reference' ? [group, entries()] : [group])),
    search: { provider: 'local', options: { miniSearch: { searchOptions } } },
    socialLinks: repository ? [{ icon: 'github', link: webAddress(repository) }] : [],
    outline: [2, 3],
  },
  vite: { plugins: [vueOfTheSite(), llmstxt()] },
})

/** The pages that `api.mjs` writes: one for each entry of the package, and in it one for each class but errors. */
function entries() {
  const paths = Object.keys(exports).filter((path) => !/\.json$|^\.\/internal/.test(path))
  const items = paths.map((path) => {
    const text = posix.join(name, path)
    const classes = `api/${text}/classes`
    const link = (it: string) => ({ text: it, link: `/${classes}/${it}` })
    return { text, link: `/api/${text}/`, items: classesIn(classes).map(link) }
  })
  return { text: 'Entries of the package', collapsed: true, items }
}

/** Empty before they are written. [Errors](../../docs/errors.md) have a page that is not generated. */
function classesIn(folder: string): string[] {
  const url = new URL(`../../docs/${folder}`, import.meta.url)
  if (!existsSync(url)) return []
  return readdirSync(url)
    .map((file) => file.replace(/\.md$/, ''))
    .filter((it) => !it.endsWith('Error'))
}

/** Of `repository` in package.json: an address, or an object that has one. */
function webAddress(repository: string | { url: string }): string {
  const url = typeof repository === 'string' ? repository : repository.url
  return url.replace(/^git\+/, '').replace(/\.git$/, '')
}

/** The id of a heading as GitHub makes it: links between the documents work in both places. */
function githubSlug(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')
}

/** The pages are outside of this folder, so Vue is looked for from here. */
function vueOfTheSite(): Plugin {
  return {
    name: 'vue-of-the-site',
    enforce: 'pre',
    resolveId(id, _importer, options) {
      if (!/^vue(\/|$)/.test(id)) return undefined
      if (options.ssr) return { id, external: true }
      return this.resolve(id, fileURLToPath(import.meta.url), { ...options, skipSelf: true })
    },
  }
}
