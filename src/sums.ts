/** Adds up fields of several objects. */
export function sumsOf<K extends string>(
  fields: readonly K[],
  objects: readonly Readonly<Record<K, number>>[],
): Record<K, number> {
  const sums = fields.map((field) => [field, objects.reduce((sum, one) => sum + one[field], 0)])
  return Object.fromEntries(sums)
}
