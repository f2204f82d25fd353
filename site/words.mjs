// Prints for each page how many words it has, how long its sentences are, and how many words there are for each figure:
// `npm run check:words`, or `npm run check:words -- docs/groups.md` for the longest sentences of some pages.
import { readdirSync, readFileSync } from 'node:fs'

const given = process.argv.slice(2)
const docs = readdirSync('docs', { recursive: true }).filter(
  (it) => it.endsWith('.md') && !/^(?:api|public)\b/.test(it),
)
const pages = given.length > 0 ? given : ['README.md', ...docs.sort().map((it) => `docs/${it}`)]

/** The sentences of a page: of paragraphs, of items of lists and of cells of tables. Code is none. */
function sentencesOf(text) {
  const blocks = text
    .replaceAll(/^```[\s\S]*?^```/gm, '\n\n')
    .replaceAll(/<!--[\s\S]*?-->/g, '')
    .replaceAll(/`[^`\n]*`/g, 'code')
    .replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/^\s*(?:[-*]|\d+\.|>|#+)\s/gm, '\n\n')
    .replaceAll(/^\|[-| :]*\|$/gm, '')
    .replaceAll('|', '\n\n')
    .split(/\n\s*\n/)
  return blocks
    .flatMap((block) => block.replaceAll(/\s+/g, ' ').split(/(?<=[.!?:;])\s+(?=[A-Z"'(*]|code)/))
    .filter((it) => /\w/.test(it))
}

const wordsOf = (sentence) => sentence.split(' ').filter((it) => /\w/.test(it)).length

let total = 0
for (const page of pages) {
  const text = readFileSync(page, 'utf8')
  const sentences = sentencesOf(text).map((it) => [wordsOf(it), it])
  // What is no sentence, such as a heading or a cell, is short.
  const whole = sentences.filter(([words]) => words > 4)
  const words = text.split(/\s+/).length
  const figures = sentences.reduce((sum, [, it]) => sum + (it.match(/(?<![\w.])\d[\d,.]*/g)?.length ?? 0), 0)
  const mean = whole.reduce((sum, [count]) => sum + count, 0) / Math.max(1, whole.length)
  const longest = Math.max(0, ...sentences.map(([count]) => count))
  total += words
  console.log(
    `${page.padEnd(32)} ${String(words).padStart(6)} words, ${mean.toFixed(1).padStart(5)} a sentence, longest ${String(longest).padStart(3)}, ${figures > 0 ? (words / figures).toFixed(0) : '-'} words a figure`,
  )
  if (given.length === 0) continue
  for (const [count, it] of sentences.filter(([many]) => many > 35)) console.log(`  ${count}: ${it}`)
}
console.log(`${total} words`)
