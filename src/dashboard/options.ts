import type { FastifyRequest } from 'fastify'
import { checkCallOptions } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import type { InspectorOptions } from '../inspect/index.ts'

/** Options of {@link dashboard}. */
export interface DashboardOptions {
  /** BullMQ's: an ioredis client, or the options of one. Actions write over it. */
  readonly connection: InspectorOptions['connection']
  /** Reads go here: a user that can not write, a replica. Default: `connection`. */
  readonly readConnection?: InspectorOptions['connection']
  /** Prefix of the queues' keys. Default 'bull'. */
  readonly prefix?: string
  /** Whether rates, pauses and modes can be changed, and dead letters put back. Default false. */
  readonly allowActions?: boolean
  /** Who changes things, for the history. Default: the holder of the token, else 'dashboard'. */
  readonly actor?: (request: FastifyRequest) => string
  /** A token file: a JSON list of `{ name, sha256, queues? }`. Default: nobody is asked who he is. */
  readonly tokens?: string
  /**
   * Something before it knows who calls, such as a hook of the app or a proxy. Without it, and without `tokens`, only
   * browsers of this machine that ask for it by a name of this machine are answered. Default false.
   */
  readonly guardedBefore?: boolean
  /** Whether the data of jobs is shown. Default false. */
  readonly showData?: boolean
  /** Title of the page. Default 'Sluice'. */
  readonly title?: string
}

/** Options with their defaults. */
export interface ResolvedOptions {
  readonly connection: InspectorOptions['connection']
  readonly readConnection: InspectorOptions['connection']
  readonly prefix: string
  readonly allowActions: boolean
  readonly actor: DashboardOptions['actor']
  readonly tokens: string | undefined
  readonly guardedBefore: boolean
  readonly showData: boolean
  readonly title: string
}

const TYPES = {
  prefix: 'string',
  allowActions: 'boolean',
  actor: 'function',
  tokens: 'string',
  guardedBefore: 'boolean',
  showData: 'boolean',
  title: 'string',
} as const

/** @throws InvalidInputError */
export function resolveOptions(options: DashboardOptions): ResolvedOptions {
  checkCallOptions('dashboard', options, ['connection', 'readConnection', ...Object.keys(TYPES)])
  const { connection, readConnection = connection } = options
  for (const [name, value] of Object.entries({ connection, readConnection })) {
    if (typeof value !== 'object' || value === null) {
      throw new InvalidInputError(`${name} must be an ioredis client or its options; got ${String(value)}`)
    }
  }
  for (const [name, type] of Object.entries(TYPES)) {
    const value = options[name as keyof typeof TYPES]
    // A word such as 'false' would else allow what it forbids.
    if (value !== undefined && typeof value !== type) {
      throw new InvalidInputError(`${name} must be a ${type}; got ${JSON.stringify(value) ?? String(value)}`)
    }
  }
  return {
    ...{ connection, readConnection, actor: options.actor, tokens: options.tokens },
    prefix: options.prefix ?? 'bull',
    allowActions: options.allowActions ?? false,
    guardedBefore: options.guardedBefore ?? false,
    showData: options.showData ?? false,
    title: options.title ?? 'Sluice',
  }
}
