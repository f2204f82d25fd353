import { readFileSync } from 'node:fs'
import { profiles } from 'sluice/egress'
import { type EgressFetch, egressFetch, InvalidFetchOptionsError, METHODS, type TargetConfig } from 'sluice-fetch'
import {
  readBy,
  reasonOf,
  SettingsError,
  type SettingsOf,
  type SettingTable,
  wholeNumber,
  yesOrNo,
} from 'sluice-programs'
import { z } from 'zod'
import { commonTable, profileSetting } from '../common-settings.ts'
import type { WorkerProgram } from '../worker-program.ts'
import { createHttpProcessor } from './processor.ts'

const PROFILES = [
  ...(['http', 'stripe', 'github', 'slack', 'discord', 'shopify', 'openai', 'anthropic', 'aws', 'azure'] as const),
  ...(['akamai', 'atlassian', 'cloudflare', 'mailerlite', 'salesforce'] as const),
] as const

const httpTable = {
  ...commonTable('http'),
  profile: profileSetting(PROFILES, 'http'),
  targets: {
    variable: 'TARGETS',
    expected: 'a JSON file: {"targets": {"name": {"baseUrl": "https://…", "headers": {…}}}}; needed without ALLOW_URLS',
    schema: readBy(readTargets),
    fallback: '',
  },
  allowUrls: {
    variable: 'ALLOW_URLS',
    expected: 'true or false: whether jobs may also name https:// URLs with public addresses',
    schema: yesOrNo,
    fallback: 'false',
  },
  urlPorts: {
    variable: 'URL_PORTS',
    expected: 'ports allowed in such URLs, such as 443,8443',
    schema: readBy(readPorts),
    fallback: '443',
  },
  timeoutMs: {
    variable: 'HTTP_TIMEOUT_MS',
    expected: 'milliseconds from 100: time limit of one attempt, up to the end of the response',
    schema: wholeNumber(100, 3_600_000),
    fallback: '30000',
  },
  maxResponseBytes: {
    variable: 'MAX_RESPONSE_BYTES',
    expected: 'a whole number: maximum bytes read from a response',
    schema: wholeNumber(0, 1_073_741_824),
    fallback: '1048576',
  },
  maxBodyChars: {
    variable: 'MAX_BODY_CHARS',
    expected: "a whole number: maximum characters of a response kept in the job's result",
    schema: wholeNumber(0, 16_777_216),
    fallback: '16384',
  },
} as const satisfies SettingTable

type HttpSettings = SettingsOf<typeof httpTable>

export const httpProgram: WorkerProgram<HttpSettings> = {
  name: 'http',
  purpose: 'Sends each job of a queue as one HTTP request to a configured target, at the rate of the queue.',
  jobFormat: '{ target: name of a configured target, path?, query?, method?, headers?, json or text? }',
  settings: httpTable,
  check: (settings) => openFetch(settings).close(),
  async open(settings) {
    const fetch = openFetch(settings)
    return {
      process: createHttpProcessor(fetch),
      feedback: profiles[settings.profile],
      close: () => fetch.close(),
    }
  },
}

/** Does not check that the targets answer: the meter would not count such a request. */
function openFetch(settings: HttpSettings): EgressFetch {
  const { targets, allowUrls, urlPorts, timeoutMs, maxResponseBytes, maxBodyChars } = settings
  try {
    return egressFetch({ targets, allowUrls, urlPorts, timeoutMs, maxResponseBytes, maxBodyChars })
  } catch (error) {
    if (!(error instanceof InvalidFetchOptionsError)) throw error
    // The other settings were already checked when they were read.
    throw new SettingsError(error.problems.map((problem) => ({ variable: 'TARGETS', problem })))
  }
}

function readTargets(path: string): Targets {
  if (path === '') return {}
  try {
    return parseTargets(readFileSync(path, 'utf8'))
  } catch (error) {
    // One line for each problem in the file, or one line if the file cannot be read.
    const lines = error instanceof Error ? error.message.split('\n') : [reasonOf(error)]
    throw new Error(lines.map((line) => `${path}: ${line}`).join('\n'))
  }
}

function readPorts(text: string): readonly number[] {
  const ports = text.split(',').map((port) => (/^\s*\d{1,5}\s*$/.test(port) ? Number(port) : 0))
  if (ports.every((port) => port >= 1 && port <= 65_535)) return ports
  throw new Error('expected ports from 1 to 65535, separated by commas')
}

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
