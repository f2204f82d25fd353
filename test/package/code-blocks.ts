import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT: string = fileURLToPath(new URL('../..', import.meta.url))
export const README: string = join(ROOT, 'README.md')

/** A fenced block of a document. */
export interface CodeBlock {
  readonly document: string
  readonly language: string
  readonly code: string
  /** The line of its fence, from 1. */
  readonly line: number
}

/** The README and everything in docs. */
export function documents(): string[] {
  const docs = join(ROOT, 'docs')
  const names = readdirSync(docs).filter((name) => name.endsWith('.md'))
  return [README, ...names.map((name) => join(docs, name))]
}

export function codeBlocks(document: string): CodeBlock[] {
  const text = readFileSync(document, 'utf8')
  return [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map(({ 1: language = '', 2: code = '', index }) => ({
    document,
    language,
    code,
    line: text.slice(0, index).split('\n').length,
  }))
}
