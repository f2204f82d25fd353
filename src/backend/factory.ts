import { type BackendFactory, createRedisBackend, type QueueBaseOptions, type RedisQueueBackend } from 'bullmq'
import { ClusterPrefixError } from '../errors.ts'
import { defaultDeclarer } from '../redis/ids.ts'
import { installedScripts } from '../redis/scripts.ts'
import { withSentinelDefaults } from '../redis/sentinel-defaults.ts'
import { encodeShape, type Shape } from '../shape/shape.ts'
import { ShapedBackend, type ShapedBackendOptions } from './backend.ts'

/**
 * A BullMQ `BackendFactory`: any BullMQ class that gets it (Queue, Worker, FlowProducer, QueueEvents, …) follows the
 * shape stored for its queue, including BullMQ's own classes.
 * @throws UnsupportedVersionError if the installed BullMQ has scripts of another layout
 */
export const createShapedBackend: BackendFactory<ShapedBackend> = (name, opts, connections) =>
  shapedBackend(name, opts, connections, {})

/**
 * The same for Sluice's own classes, with additional options. On a cluster these require a prefix with a hash tag at
 * construction ({@link ClusterPrefixError}); BullMQ's own classes get Redis's error later.
 */
export function shapedBackendFactory(options: ShapedBackendOptions): BackendFactory<ShapedBackend> {
  return (name, opts, connections) => {
    refuseUntaggedPrefix(options.deadLetter ? '' : name, opts)
    return shapedBackend(name, opts, connections, options)
  }
}

function shapedBackend(
  name: string,
  given: QueueBaseOptions,
  connections: Parameters<BackendFactory>[2],
  options: ShapedBackendOptions,
): ShapedBackend {
  const opts = { ...given, connection: withSentinelDefaults(given.connection) }
  const blocks = connections?.blocking === true
  const family = { scripts: installedScripts(), stores: new Map(), options, blocks }
  const plain = createRedisBackend(name, opts, connections) as RedisQueueBackend
  // The plain backend only provides its connections, but keeps listening to them: an 'error' without a listener throws.
  plain.on('error', () => {})
  const toKey = (type: string) => plain.toKey(type)
  return new ShapedBackend(plain.connection, name, plain.keys, toKey, opts, plain.blockingConnection, true, family)
}

/**
 * Only a tag in the prefix puts dead letters and their jobs into one hash slot.
 * @param name of the queue, if the tag may be in it instead
 */
function refuseUntaggedPrefix(name: string, opts: QueueBaseOptions): void {
  const { connection, prefix = 'bull' } = opts as QueueBaseOptions & { prefix?: string }
  const { isCluster } = (connection ?? {}) as { isCluster?: boolean }
  if (isCluster && !/^[^{]*\{[^}]+\}/.test(`${prefix}:${name}`)) throw new ClusterPrefixError(prefix)
}

/**
 * The backend options of a class with a `shape` option.
 * @throws InvalidShapeError, InvalidRateError
 */
export function declaringBackendOptions(shape: Shape | undefined, declarer = defaultDeclarer()): ShapedBackendOptions {
  if (shape === undefined) return { alwaysShaped: true }
  return { alwaysShaped: true, declaration: { ...encodeShape(shape), declarer } }
}
