import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import ts from 'typescript'
import { expect, test } from 'vitest'
import * as sluice from '../../src/index.ts'
import { ReferenceBucket } from '../../src/testing/index.ts'
import { Declarations } from '../reference/declarations.ts'
import { errorFields, exportedErrors } from '../reference/errors.ts'
import { type CodeBlock, codeBlocks, documents, ROOT, showsExamples } from './code-blocks.ts'

/** Values of the reader's own program, which snippets take for granted. What comes from a package they import. */
const GIVEN = `
  declare const connection: { host: string; port: number }
  declare const prefix: string
  declare const redis: import('ioredis').Redis
  declare const shape: import('sluice').Shape
  declare const queue: import('sluice').ShapedQueue<{ to: string }>
  declare const worker: import('sluice').ShapedWorker<{ to: string }>
  declare const flows: import('sluice').ShapedFlowProducer
  declare const log: import('pino').Logger
  declare function send(job: import('bullmq').Job<{ to: string }>): Promise<void>
  declare module 'bottleneck'
  declare module '@taskforcesh/bullmq-pro'
`
const CHECKED = ['ts', 'js']
/** A wrong argument, and a class that is not imported. */
const WRONG = "queue.add('job', { to: 1 })\nnew ShapedQueue('mails')\n"

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
  // Of the blocks alone: `npm run typecheck` reads the sources that they import.
  const diagnostics = [...files.keys()].flatMap((name) => {
    const file = program.getSourceFile(name)
    return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)]
  })
  diagnostics.push(...program.getOptionsDiagnostics(), ...program.getGlobalDiagnostics())
  return diagnostics.map(({ file, start = 0, messageText }) => {
    const line = (file?.getLineAndCharacterOfPosition(start).line ?? 0) + 1
    const name = file ? relative(ROOT, file.fileName).replace(/\.\d+\.ts$/, '') : ''
    return `${name}:${line} ${ts.flattenDiagnosticMessageText(messageText, ' ')}`
  })
}

/** Its lines are numbered as in the document. */
function moduleOf({ code, line }: CodeBlock): string {
  return `${'\n'.repeat(line)}${code}\nexport {}`
}

test('every snippet of the README and of docs compiles, but for those of examples, and one that does not is found with its line', () => {
  const blocks = documents()
    .filter((document) => !showsExamples(document))
    .flatMap(codeBlocks)
    .filter(({ language }) => CHECKED.includes(language))
  expect(blocks.length).toBeGreaterThan(5)
  const wrong = { document: join(ROOT, 'wrong.md'), language: 'ts', code: WRONG, line: 7 }
  const mistakes = [/^wrong\.md:8 .*number/, /^wrong\.md:9 .*'ShapedQueue'/].map((text) => expect.stringMatching(text))
  expect(mistakesOf([wrong, ...blocks])).toEqual(mistakes)
}, 600_000)

test('docs/sizing.md and the docstring of sizeShape show what it computes', () => {
  const texts = [join(ROOT, 'docs', 'sizing.md'), join(ROOT, 'src', 'shape', 'sizing.ts')].map((file) =>
    readFileSync(file, 'utf8'),
  )
  const examples = [...texts.join('\n').matchAll(/sizeShape\((\{ rate.*\})\)\n(?: \* )?\/\/ (\{.*\})/g)]
  expect(examples.length).toBe(4)
  for (const [, input, output] of examples) expect(sluice.sizeShape(literal(input))).toEqual(literal(output))
})

test('the rates that docs/limiters.md chooses for a provider keep its window, and no higher ones would', () => {
  const rows = [
    { quota: 100, windowMs: 60_000, burst: 10, jitterMs: 500 },
    { quota: 10, windowMs: 1000, burst: 3, jitterMs: 50 },
    { quota: 40, windowMs: 20_000, burst: 1, jitterMs: 0 },
  ]
  for (const { quota, windowMs, burst, jitterMs } of rows) {
    const limit = quota - burst + 1
    const most = (periodMs: number) => {
      const bucket = new ReferenceBucket({ rate: { limit, period: periodMs }, burst })
      return mostReceived(bucket, quota * 3, (windowMs + jitterMs) * 1000)
    }
    expect(most(windowMs + jitterMs + 1)).toBe(quota)
    expect(most(windowMs + jitterMs - 1)).toBe(quota + 1)
  }
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

test('docs/errors.md has a section for every exported error with all of its fields, and for no other', () => {
  const text = readFileSync(join(ROOT, 'docs', 'errors.md'), 'utf8')
  const sections = new Map(
    Array.from(text.matchAll(/^## (\w+Error)\n([\s\S]*?)(?=^## )/gm), ([, name = '', section = '']) => [name, section]),
  )
  expect([...sections.keys()].toSorted()).toEqual([...exportedErrors().keys()].toSorted())
  const declarations = new Declarations()
  // The page explains these three once, for all.
  const common = ['queueName', 'limitName', 'groupId']
  const missing = [...sections].flatMap(([name, section]) =>
    errorFields(declarations, name)
      .filter((field) => !common.includes(field) && !section.includes(`\`${field}`))
      .map((field) => `${name}.${field}`),
  )
  expect(missing).toEqual([])
})

test('the tests that documents name are there', () => {
  const named = documents().flatMap((document) =>
    Array.from(
      readFileSync(document, 'utf8').matchAll(/`((?:test|packages)\/[\w./-]+\.test\.ts)`/g),
      ([, file]) => file as string,
    ),
  )
  expect(named.length).toBeGreaterThan(30)
  expect(named.filter((file) => !existsSync(join(ROOT, file)))).toEqual([])
})

test('a test names each row of docs/faults.md, and no other', () => {
  const page = readFileSync(join(ROOT, 'docs', 'faults.md'), 'utf8')
  const rows = Array.from(page.matchAll(/^\| (\d+) \|/gm), ([, row]) => Number(row))
  const named = ['test', ...readdirSync(join(ROOT, 'packages')).map((name) => join('packages', name, 'test'))]
    .map((folder) => join(ROOT, folder))
    .filter((folder) => existsSync(folder))
    .flatMap((folder) => (readdirSync(folder, { recursive: true }) as string[]).map((file) => join(folder, file)))
    .filter((file) => file.endsWith('.test.ts'))
    .flatMap((file) => Array.from(readFileSync(file, 'utf8').matchAll(/Fault table, rows? ([\d, and]+)/g)))
    .flatMap(([, list = '']) => Array.from(list.matchAll(/\d+/g), ([row]) => Number(row)))
  expect(new Set(named)).toEqual(new Set(rows))
})

function literal<T>(text: string | undefined): T {
  return new Function(`return (${text})`)()
}

/** The most jobs whose slots lie within so many µs of each other, while jobs never run out. */
function mostReceived(bucket: ReferenceBucket, jobs: number, withinUs: number): number {
  const slots = Array.from({ length: jobs }, () => bucket.depart(1, Number.MAX_SAFE_INTEGER) as number)
  return Math.max(...slots.map((from, i) => slots.slice(i).filter((slot) => slot - from <= withinUs).length))
}

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
