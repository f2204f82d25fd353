/** A change of a source text that a test should notice. */
export interface Edit {
  readonly start: number
  readonly end: number
  readonly replacement: string
}

/** What each operator becomes. */
export const OPERATORS: Readonly<Record<string, string>> = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '==': '~=',
  '~=': '==',
  '===': '!==',
  '!==': '===',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '%': '*',
  '+=': '-=',
  '-=': '+=',
  and: 'or',
  or: 'and',
  '&&': '||',
  '||': '&&',
  '??': '&&',
}

/** The same of functions of `math` and `Math`. */
export const ROUNDING: Readonly<Record<string, string>> = { min: 'max', max: 'min', floor: 'ceil', ceil: 'floor' }

/** The edit of an operator that stands between two operands. */
export function operatorEdit(text: string, operator: string, after: number, before: number): Edit[] {
  const replacement = OPERATORS[operator]
  if (replacement === undefined) return []
  const start = after + text.slice(after, before).indexOf(operator)
  return [{ start, end: start + operator.length, replacement }]
}

export function negated(text: string, start: number, end: number, not: string): Edit {
  return { start, end, replacement: `${not}(${text.slice(start, end)})` }
}
