import { METHODS, type TargetConfig } from 'sluice-fetch'
import { z } from 'zod'

const NAME = /^[A-Za-z][\w-]{0,63}$/
const VARIABLE = /^[A-Za-z_]\w{0,127}$/

const secretSchema = z.strictObject({ env: z.string().regex(VARIABLE), prefix: z.string().optional() })

const targetSchema = z.strictObject({
  baseUrl: z.string(),
  headers: z
    .record(z.string(), z.union([z.string(), secretSchema], 'expected a text or {"env": "VARIABLE", "prefix": "…"}'))
    .optional(),
  jobHeaders: z.array(z.string()).optional(),
  methods: z.array(z.enum(METHODS)).min(1).optional(),
  idempotencyHeader: z.string().optional(),
})

const fileSchema = z.strictObject({
  targets: z
    .record(z.string().regex(NAME), targetSchema)
    .refine((targets) => Object.keys(targets).length > 0, 'expected at least one target'),
})

/** The targets that jobs may name. */
export type Targets = Readonly<Record<string, TargetConfig>>

/**
 * Reads the text of a target file: `{"targets": {"name": {"baseUrl": "https://…", "headers": {…}}}}`.
 * @throws Error whose message has one line for each problem.
 */
export function parseTargets(json: string): Targets {
  const parsed = fileSchema.safeParse(JSON.parse(json))
  if (parsed.success) return parsed.data.targets
  const lines = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'the file'}: ${message}`)
  throw new Error(lines.join('\n'))
}
