import { InvalidShapeError } from '../errors.ts'
import { encodeShape, type Shape } from '../shape/shape.ts'

const EXPECTED = "a shape such as 'rate=8/s,burst=10,capacity=1000', or JSON"

/**
 * Reads a shape: fields and values, or JSON for values that are neither strings nor numbers.
 * @throws InvalidShapeError, InvalidRateError
 */
export function parseShapeText(text: string): Shape {
  const shape = text.trim().startsWith('{') ? parseJson(text) : parseFields(text)
  encodeShape(shape)
  return shape
}

function parseJson(text: string): Shape {
  try {
    return JSON.parse(text) as Shape
  } catch (error) {
    throw new InvalidShapeError(`expected ${EXPECTED}; got '${text}': ${(error as Error).message}`)
  }
}

function parseFields(text: string): Shape {
  const fields: Record<string, string | number> = {}
  for (const part of text.split(',')) {
    const at = part.indexOf('=')
    const [field, value] = [part.slice(0, at).trim(), part.slice(at + 1).trim()]
    if (at === -1 || !/^\w+$/.test(field) || value === '' || Object.hasOwn(fields, field)) {
      throw new InvalidShapeError(`expected ${EXPECTED}; got '${text}'`)
    }
    fields[field] = /^\d+(\.\d+)?$/.test(value) ? Number(value) : value
  }
  return fields as Shape
}
