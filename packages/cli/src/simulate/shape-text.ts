import type { Shape } from 'sluice'
import { encodeShape, InvalidShapeError } from 'sluice/internal'
import { encodeGroupSettings, type GroupSettings } from './group-settings.ts'

const EXPECTED = "a shape such as 'rate=8/s,burst=10,capacity=1000', or JSON"

/** A shape to simulate. */
export interface ShapeText {
  readonly shape: Shape
  readonly setGroup: GroupSettings
}

/**
 * Reads a shape: fields and values, or JSON for values that are neither strings nor numbers. The JSON may have
 * `setGroup` beside the fields: what is set for single groups.
 * @throws InvalidShapeError, InvalidRateError, InvalidGroupError
 */
export function parseShapeText(text: string): ShapeText {
  const { setGroup = {}, ...shape } = text.trim().startsWith('{') ? parseJson(text) : parseFields(text)
  encodeShape(shape)
  encodeGroupSettings(setGroup, shape, 0)
  return { shape, setGroup }
}

function parseJson(text: string): Shape & Partial<Pick<ShapeText, 'setGroup'>> {
  try {
    return JSON.parse(text) as Shape
  } catch (error) {
    throw new InvalidShapeError(`expected ${EXPECTED}; got '${text}': ${(error as Error).message}`)
  }
}

function parseFields(text: string): ReturnType<typeof parseJson> {
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
