/**
 * Whether a shape or limit is enforced: `shadow` only counts what it would have held or refused, `off` does not even
 * count.
 */
export type ShapeMode = 'enforce' | 'shadow' | 'off'
