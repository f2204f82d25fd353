import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import ts from 'typescript'
import { expect, test } from 'vitest'
import * as sluice from '../../src/index.ts'
import { type CodeBlock, codeBlocks, documents, README, ROOT } from './code-blocks.ts'

/** What the snippets of the documents take for granted. */
const GIVEN = `
  declare const connection: { host: string; port: number }
  declare const prefix: string
  declare const shape: import('sluice').Shape
  declare const queue: import('sluice').ShapedQueue<{ to: string }>
  declare const worker: import('sluice').ShapedWorker<{ to: string }>
  declare const flows: import('sluice').ShapedFlowProducer
  declare function send(mail: { to: string }): Promise<void>
  declare module 'bottleneck'
  declare module '@taskforcesh/bullmq-pro'
`
const CHECKED = ['ts', 'js']

/** Everything that the compiler finds in the blocks, each a module of its own beside its document. */
function mistakesOf(blocks: readonly CodeBlock[]): string[] {
  const files = new Map(blocks.map((block) => [`${block.document}.${block.line}.ts`, moduleOf(block)]))
  files.set(join(ROOT, 'docs', 'given.d.ts'), GIVEN)
  const { options } = ts.getParsedCommandLineOfConfigFile(join(ROOT, 'tsconfig.json'), {}, {
    ...ts.sys,
    onUnRecoverableConfigFileDiagnostic: () => {},
  } as ts.ParseConfigFileHost) as ts.ParsedCommandLine
  const settings = { ...options, noUnusedLocals: false, noUnusedParameters: false, noImplicitAny: false }
  const host = ts.createCompilerHost(settings)
  const { fileExists, readFile, getSourceFile } = host
  host.fileExists = (name) => files.has(name) || fileExists(name)
  host.readFile = (name) => files.get(name) ?? readFile(name)
  host.getSourceFile = (name, version, ...rest) => {
    const text = files.get(name)
    return text === undefined ? getSourceFile(name, version, ...rest) : ts.createSourceFile(name, text, version)
  }
  const program = ts.createProgram([...files.keys()], settings, host)
  return ts.getPreEmitDiagnostics(program).map(({ file, start = 0, messageText }) => {
    const line = (file?.getLineAndCharacterOfPosition(start).line ?? 0) + 1
    const name = file ? relative(ROOT, file.fileName).replace(/\.\d+\.ts$/, '') : ''
    return `${name}:${line} ${ts.flattenDiagnosticMessageText(messageText, ' ')}`
  })
}

/** Its lines are numbered as in the document. */
function moduleOf({ code, line }: CodeBlock): string {
  return `${'\n'.repeat(line)}${code}\nexport {}`
}

test('every snippet of the README and of docs compiles', () => {
  const blocks = documents()
    .flatMap(codeBlocks)
    .filter(({ language }) => CHECKED.includes(language))
  expect(blocks.length).toBeGreaterThan(5)
  expect(mistakesOf(blocks)).toEqual([])
})

test('a snippet that does not compile is found, with its line', () => {
  const wrong = { document: README, language: 'ts', code: "queue.add('job', { to: 1 })\n", line: 7 }
  expect(mistakesOf([wrong])).toEqual([expect.stringMatching(/^README\.md:8 .*number/)])
})

test('every link of a document leads to a file or a heading that is there', () => {
  const broken = documents().flatMap((document) => {
    const links = [...readFileSync(document, 'utf8').matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)/g)]
    return links
      .filter(([, path = '', heading]) => {
        const target = path === '' ? document : join(dirname(document), path)
        return !existsSync(target) || (heading !== undefined && !headingsOf(target).includes(heading))
      })
      .map(([link]) => `${relative(ROOT, document)}: ${link}`)
  })
  expect(broken).toEqual([])
})

test('docs/errors.md has a section for every exported error, and for no other', () => {
  const exported = Object.entries(sluice)
    .filter(([, value]) => isError(value))
    .map(([name]) => name)
  const text = readFileSync(join(ROOT, 'docs', 'errors.md'), 'utf8')
  const sections = [...text.matchAll(/^## (\w+Error)$/gm)].map(([, name]) => name)
  expect(sections.toSorted()).toEqual(exported.toSorted())
})

test('the options table of the README has every field of a shape', () => {
  const rows = [...readFileSync(README, 'utf8').matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name)
  const fields = [...readFileSync(join(ROOT, 'src', 'shape.ts'), 'utf8').matchAll(/^ {2}readonly (\w+)\?:/gm)]
  expect(rows).toEqual(expect.arrayContaining(fields.map(([, name]) => name)))
})

function headingsOf(document: string): string[] {
  const headings = readFileSync(document, 'utf8').match(/^#+ .*$/gm) ?? []
  return headings.map((heading) =>
    heading
      .replace(/^#+ /, '')
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  )
}

function isError(value: unknown): boolean {
  return value === sluice.SluiceError || (typeof value === 'function' && value.prototype instanceof sluice.SluiceError)
}
