import luaparse from 'luaparse'
import { type Edit, negated, operatorEdit, ROUNDING } from './edits.ts'

type Ranged = luaparse.Node & { readonly range: readonly [number, number] }

export function luaEdits(text: string): Edit[] {
  const edits: Edit[] = []
  const walk = (value: unknown): void => {
    if (Array.isArray(value)) value.forEach(walk)
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return
    if ('type' in value) edits.push(...editsOf(value as luaparse.Node, text))
    Object.values(value).forEach(walk)
  }
  walk(luaparse.parse(text, { luaVersion: '5.1', ranges: true }).body)
  return edits
}

function editsOf(node: luaparse.Node, text: string): Edit[] {
  const [start, end] = rangeOf(node)
  switch (node.type) {
    case 'BinaryExpression':
    case 'LogicalExpression':
      return operatorEdit(text, node.operator, rangeOf(node.left)[1], rangeOf(node.right)[0])
    case 'UnaryExpression':
      return node.operator === '#' ? [] : [{ start, end: start + node.operator.length, replacement: '' }]
    case 'NumericLiteral':
      return [{ start, end, replacement: String(node.value + 1) }]
    case 'BooleanLiteral':
      return [{ start, end, replacement: String(!node.value) }]
    case 'MemberExpression':
      return rounding(node)
    case 'CallStatement':
      return [{ start, end, replacement: '' }]
    case 'AssignmentStatement':
      return node.init.some((it) => it.type === 'FunctionDeclaration') ? [] : [{ start, end, replacement: '' }]
    case 'IfClause':
    case 'ElseifClause':
    case 'WhileStatement':
    case 'RepeatStatement':
      return isNegatedAnyway(node.condition) ? [] : [negated(text, ...rangeOf(node.condition), 'not ')]
    case 'FunctionDeclaration': {
      const [first] = node.body
      return first ? [{ start: rangeOf(first)[0], end: rangeOf(first)[0], replacement: 'do return end ' }] : []
    }
    default:
      return []
  }
}

function rangeOf(node: luaparse.Node): [number, number] {
  const [start, end] = (node as Ranged).range
  return [start, end]
}

function rounding({ base, identifier }: luaparse.MemberExpression): Edit[] {
  const replacement = ROUNDING[identifier.name]
  if (base.type !== 'Identifier' || base.name !== 'math' || !replacement) return []
  const [start, end] = rangeOf(identifier)
  return [{ start, end, replacement }]
}

/** The edit of its operator is the same. */
function isNegatedAnyway(condition: luaparse.Expression): boolean {
  if (condition.type === 'UnaryExpression') return condition.operator === 'not'
  return condition.type === 'BinaryExpression' && ['==', '~='].includes(condition.operator)
}
