import { cpSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { MarkdownRenderer } from 'vitepress'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/**
 * Pages link to files of the repository, such as examples, as GitHub needs it. The site serves a copy of each under
 * `files/`, with its path in the repository.
 */
export class LinkedFiles {
  readonly #files = new Set<string>()

  /** For `markdown.config`. */
  readonly rewriteLinks = (md: MarkdownRenderer): void => {
    md.core.ruler.push('linked-files', ({ tokens, env }) => {
      for (const token of tokens.flatMap(({ children }) => children ?? [])) {
        const href = token.type === 'link_open' && token.attrGet('href')
        const file = href && this.#fileOf(href, env.path)
        if (!file) continue
        this.#files.add(file)
        token.attrSet('href', `/files/${relative(ROOT, file)}`)
        // VitePress leaves a link with a target as it is.
        token.attrSet('target', '_blank')
      }
    })
  }

  /** For `buildEnd`. */
  readonly copy = ({ outDir }: { outDir: string }): void => {
    for (const file of this.#files) cpSync(file, join(outDir, 'files', relative(ROOT, file)))
  }

  #fileOf(href: string, page: string): string | undefined {
    if (/^(\w+:|[/#])|\.md(#|$)/.test(href)) return undefined
    const file = resolve(dirname(page), href)
    return statSync(file, { throwIfNoEntry: false })?.isFile() ? file : undefined
  }
}
