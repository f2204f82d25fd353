// Fails unless a search of the built site finds the right page first.
import { readdirSync } from 'node:fs'
import MiniSearch from 'minisearch'
import { searchOptions } from './.vitepress/search-options.mjs'

const WANTED = {
  'quiet hours': '/recipes/quiet-hours',
  'graceful shutdown': '/kubernetes',
  429: '/feedback',
}

const chunks = new URL('.vitepress/dist/assets/chunks/', import.meta.url)
const file = readdirSync(chunks).find((name) => name.startsWith('@localSearchIndexroot'))
const { default: index } = await import(new URL(file, chunks))
const search = MiniSearch.loadJSON(index, {
  fields: ['title', 'titles', 'text'],
  storeFields: ['title', 'titles'],
  searchOptions,
})
for (const [query, page] of Object.entries(WANTED)) {
  const found = search.search(query).map(({ id }) => id)
  if (found[0]?.split('#')[0] === page) continue
  console.error(`error: a search for "${query}" must find ${page} first; got ${found.slice(0, 5).join(', ')}`)
  process.exitCode = 1
}
