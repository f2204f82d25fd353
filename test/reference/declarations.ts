import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { ROOT } from '../package/code-blocks.ts'

/** A property of an interface, or an event of a listener. */
export interface Member {
  readonly name: string
  /** Its comment on one line, as Markdown. */
  readonly comment: string
  readonly isOptional: boolean
  readonly isMethod: boolean
  /** The parameters of an event. */
  readonly parameters: readonly ts.ParameterDeclaration[]
}

interface Declaration {
  readonly members: readonly Member[]
  /** The names of what it extends. */
  readonly extended: readonly string[]
}

/** Interfaces and classes of src and of the packages by name. Only exported ones: what is not is no part of a reference. */
export class Declarations {
  readonly #found = new Map<string, Declaration>()

  constructor() {
    const folders = ['src', ...readdirSync(join(ROOT, 'packages')).map((name) => join('packages', name, 'src'))]
    const files = folders.flatMap((folder) =>
      readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
        .filter((file) => file.endsWith('.ts'))
        .map((file) => join(ROOT, folder, file)),
    )
    for (const file of files) {
      const text = readFileSync(file, 'utf8')
      const source = ts.createSourceFile(file, text, ts.ScriptTarget.ES2022, true)
      for (const node of source.statements) this.#note(node)
    }
  }

  /** What an interface or a class declares itself, and what it inherits from others of src. */
  allMembers(name: string): Member[] {
    const { members, extended } = this.#get(name)
    return [...members, ...extended.flatMap((base) => (this.#found.has(base) ? this.allMembers(base) : []))]
  }

  ownMembers(name: string): readonly Member[] {
    return this.#get(name).members
  }

  has(name: string): boolean {
    return this.#found.has(name)
  }

  /** The first class or interface that it extends. */
  baseOf(name: string): string | undefined {
    return this.#get(name).extended[0]
  }

  #get(name: string): Declaration {
    const found = this.#found.get(name)
    if (!found) throw new Error(`src has no exported interface or class ${name}`)
    return found
  }

  #note(node: ts.Statement): void {
    if (!ts.isInterfaceDeclaration(node) && !ts.isClassDeclaration(node)) return
    if (!node.name || !node.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)) return
    const extended = (node.heritageClauses ?? [])
      .filter(({ token }) => token === ts.SyntaxKind.ExtendsKeyword)
      .flatMap(({ types }) => types.map(({ expression }) => expression.getText()))
    const members = (node.members as ts.NodeArray<ts.TypeElement | ts.ClassElement>).flatMap(memberOf)
    this.#found.set(node.name.text, { members, extended })
  }
}

function memberOf(node: ts.TypeElement | ts.ClassElement | ts.ParameterDeclaration): Member[] {
  // Parameters with modifiers are properties as well.
  if (ts.isConstructorDeclaration(node)) return node.parameters.filter(({ modifiers }) => modifiers).flatMap(memberOf)
  const isProperty = ts.isPropertySignature(node) || ts.isPropertyDeclaration(node) || ts.isParameter(node)
  if (!isProperty && !ts.isMethodSignature(node)) return []
  if (ts.isPrivateIdentifier(node.name)) return []
  const type = ts.isMethodSignature(node) ? node : node.type
  const parameters = type && (ts.isFunctionTypeNode(type) || ts.isMethodSignature(type)) ? [...type.parameters] : []
  return [
    {
      name: node.name.getText(),
      comment: commentOf(node),
      isOptional: node.questionToken !== undefined,
      isMethod: ts.isMethodSignature(node),
      parameters,
    },
  ]
}

function commentOf(node: ts.Node): string {
  const comment = ts.getJSDocCommentsAndTags(node).findLast(ts.isJSDoc)
  const text = comment === undefined ? '' : (ts.getTextOfJSDocComment(comment.comment) ?? '')
  return text
    .replaceAll(/\{@link (\w+)\}/g, '`$1`')
    .replaceAll(/\s+/g, ' ')
    .replaceAll('|', '\\|')
    .trim()
}
