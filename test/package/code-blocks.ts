import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'

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

/** What stands at the top of the repository, and everything in docs. */
export function documents(): string[] {
  const files = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', ...pages().map((page) => join('docs', page))]
  return files.map((file) => join(ROOT, file))
}

/** The pages of the site, as paths in docs; those that are not committed, which `npm run docs` writes, are none. */
export function pages(): string[] {
  const files = readdirSync(join(ROOT, 'docs'), { recursive: true }) as string[]
  return files.filter((file) => file.endsWith('.md') && !file.startsWith('api/'))
}

/** Pages whose code is that of examples, which are run: `isExample` tells whether a block is. */
export function showsExamples(document: string): boolean {
  return /docs\/(start|batches|personal-data|recipes\/[\w-]+)\.md$/.test(document)
}

const EXAMPLES = join(ROOT, 'examples')

/** The programs in examples, as paths in it. */
export function examples(): string[] {
  const files = readdirSync(EXAMPLES, { recursive: true }) as string[]
  return files.filter((file) => /\.(mjs|cjs|ts)$/.test(file))
}

/** Whether a block is a part of an example, to the letter, below the imports of the example that the part uses. */
export function isExample({ code }: CodeBlock): boolean {
  const imports = importsOf(code)
  const part = code.replace(/^(?:import .*\n)+\n/, '')
  return examples().some((file) => {
    const text = readFileSync(join(EXAMPLES, file), 'utf8')
    // The top of an example: the linter knows which of its imports it uses.
    if (imports.length > 0 && text.includes(code)) return true
    return text.includes(part) && imports.join() === importsUsed(importsOf(text), part).join()
  })
}

function importsOf(code: string): string[] {
  return code.match(/^import .*$/gm) ?? []
}

/** The imports, each without the names that the code does not use: the compiler leaves those out. */
function importsUsed(imports: readonly string[], code: string): string[] {
  const { outputText } = ts.transpileModule([...imports, code].join('\n'), {
    compilerOptions: { target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext },
  })
  return importsOf(outputText).map((line) => line.replace(/;$/, ''))
}

export function codeBlocks(document: string): CodeBlock[] {
  const text = readFileSync(document, 'utf8')
  return [...text.matchAll(/^( *)```(\w*)\n([\s\S]*?)^\1```$/gm)].map(({ 2: language = '', 3: code = '', index }) => ({
    document,
    language,
    code,
    line: text.slice(0, index).split('\n').length,
  }))
}
