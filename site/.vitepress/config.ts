import { readFileSync } from 'node:fs'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig, type Plugin } from 'vitepress'
import llmstxt from 'vitepress-plugin-llms'
import { LinkedFiles } from './linked-files.ts'
import { sidebar } from './sidebar.ts'

const linkedFiles = new LinkedFiles()

export default defineConfig({
  title: 'Sluice',
  description: 'Traffic shaping for BullMQ',
  cleanUrls: true,
  srcDir: '../docs',
  cacheDir: '../.cache/vitepress',
  markdown: { anchor: { slugify: githubSlug }, config: linkedFiles.rewriteLinks },
  buildEnd: linkedFiles.copy,
  themeConfig: {
    nav: sidebar.map(({ text, items }) => ({ text, link: items[0]?.link ?? '/' })),
    sidebar: sidebar.flatMap((group) => (group.text === 'Reference' ? [group, entries()] : [group])),
    search: { provider: 'local' },
    outline: [2, 3],
  },
  vite: { plugins: [vueOfTheSite(), llmstxt()] },
})

/** The pages that `api.mjs` writes, one for each entry of the package. */
function entries() {
  const { name, exports } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  const paths = Object.keys(exports).filter((path) => !path.endsWith('.json'))
  const items = paths.map((path) => posix.join(name, path)).map((text) => ({ text, link: `/api/${text}` }))
  return { text: 'Entries of the package', collapsed: true, items }
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
