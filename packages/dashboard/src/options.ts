import type { FastifyRequest } from 'fastify'
import type { InspectorOptions } from 'sluice/inspect'
import { checkCallOptions, gotText, InvalidInputError } from 'sluice/internal'

/** Options of {@link dashboard}. */
export interface DashboardOptions {
  /** As in BullMQ: an ioredis client, or its options. Actions use it to write. */
  readonly connection: InspectorOptions['connection']
  /** The connection for reads, such as a read-only user or a replica. Default: `connection`. */
  readonly readConnection?: InspectorOptions['connection']
  /** Prefix of the queues' keys. Default 'bull'. */
  readonly prefix?: string
  /**
   * Whether limits, modes and pauses (of queues and groups) can be changed, jobs retried, removed, promoted and cancelled, and dead
   * letters redriven and dropped. Default false.
   */
  readonly allowActions?: boolean
  /** Who makes a change, for the history: a function of the request. Default: the name of the token, else 'dashboard'. */
  readonly actor?: (request: FastifyRequest) => string
  /**
   * Path of a token file: a JSON list of `{ name, sha256, queues? }`. Default: none, and only this machine is answered.
   */
  readonly tokens?: string
  /**
   * Whether something in front of the dashboard authenticates callers, such as a hook of the app or a proxy, on all of its
   * paths. If not, and without `tokens`, only requests from this machine, by a name of this machine, are answered. Default false.
   */
  readonly guardedBefore?: boolean
  /** Whether the data and results of jobs are shown. Default false. */
  readonly showData?: boolean
  /** Title of the page. Default 'Sluice'. */
  readonly title?: string
}

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
      throw new InvalidInputError(`${name} must be an ioredis client or its options; got ${gotText(value)}`)
    }
  }
  for (const [name, type] of Object.entries(TYPES)) {
    const value = options[name as keyof typeof TYPES]
    // A string such as 'false' would otherwise enable the option.
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
