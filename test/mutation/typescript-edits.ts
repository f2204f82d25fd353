import ts from 'typescript'
import { type Edit, negated, operatorEdit, ROUNDING } from './edits.ts'

export function typescriptEdits(text: string): Edit[] {
  const edits: Edit[] = []
  const walk = (node: ts.Node): void => {
    // Types mean nothing at run time, and the words of an error nothing to a program.
    if (ts.isTypeNode(node) || ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return
    if (ts.isThrowStatement(node) || ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return
    edits.push(...editsOf(node, text))
    ts.forEachChild(node, walk)
  }
  walk(ts.createSourceFile('source.ts', text, ts.ScriptTarget.Latest, true))
  return edits
}

function editsOf(node: ts.Node, text: string): Edit[] {
  const [start, end] = [node.getStart(), node.end]
  if (ts.isBinaryExpression(node)) return binary(node, text)
  if (ts.isNumericLiteral(node)) return [{ start, end, replacement: String(Number(node.text) + 1) }]
  if (node.kind === ts.SyntaxKind.TrueKeyword) return [{ start, end, replacement: 'false' }]
  if (node.kind === ts.SyntaxKind.FalseKeyword) return [{ start, end, replacement: 'true' }]
  if (ts.isPrefixUnaryExpression(node) && ['!', '-'].includes(text[start] ?? ''))
    return [{ start, end: start + 1, replacement: '' }]
  if (ts.isPropertyAccessExpression(node)) return rounding(node)
  if (ts.isExpressionStatement(node)) return isOfSuper(node) ? [] : [{ start, end, replacement: ';' }]
  if (ts.isConditionalExpression(node)) return condition(node.condition, text)
  if (ts.isIfStatement(node) || ts.isWhileStatement(node) || ts.isDoStatement(node))
    return condition(node.expression, text)
  if (ts.isFunctionLike(node)) return early(node)
  return []
}

function binary({ left, operatorToken, right }: ts.BinaryExpression, text: string): Edit[] {
  const isText = operatorToken.getText() === '+' && [left, right].some((it) => ts.isStringLiteralLike(it))
  return isText ? [] : operatorEdit(text, operatorToken.getText(), left.end, right.getStart())
}

function rounding({ expression, name }: ts.PropertyAccessExpression): Edit[] {
  const replacement = ROUNDING[name.text]
  if (expression.getText() !== 'Math' || !replacement) return []
  return [{ start: name.getStart(), end: name.end, replacement }]
}

/** The edit of a `!` or of an equality is the same. */
function condition(of: ts.Expression, text: string): Edit[] {
  if (ts.isPrefixUnaryExpression(of)) return []
  if (ts.isBinaryExpression(of) && /^[!=]==$/.test(of.operatorToken.getText())) return []
  return [negated(text, of.getStart(), of.end, '!')]
}

function early(of: ts.SignatureDeclaration): Edit[] {
  const { body } = of as ts.FunctionLikeDeclaration
  const [first] = body && ts.isBlock(body) ? body.statements : []
  if (!first || isOfSuper(first)) return []
  return [{ start: first.getStart(), end: first.getStart(), replacement: 'if (1) return; ' }]
}

function isOfSuper(node: ts.Node): boolean {
  if (!ts.isExpressionStatement(node) || !ts.isCallExpression(node.expression)) return false
  return node.expression.expression.kind === ts.SyntaxKind.SuperKeyword
}
