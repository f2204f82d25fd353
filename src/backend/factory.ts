import { type BackendFactory, createRedisBackend, type QueueBaseOptions, type RedisQueueBackend } from 'bullmq'
import { ClusterPrefixError } from '../errors.ts'
import { captureBullmqScripts, checkBullmqScripts } from '../redis/bullmq-scripts.ts'
import { defaultDeclarer } from '../redis/ids.ts'
import { ScriptSet } from '../redis/scripts.ts'
import { encodeShape, type Shape } from '../shape/shape.ts'
import { VERSION } from '../version.ts'
import { ShapedBackend } from './backend.ts'
import type { ShapedBackendOptions } from './options.ts'

let scripts: ScriptSet | undefined

/**
 * The scripts for the installed BullMQ; composed and checked once per process.
 * @throws UnsupportedVersionError
 */
function installedScripts(): ScriptSet {
  if (!scripts) {
    const bullmq = captureBullmqScripts()
    const warning = checkBullmqScripts(bullmq)
    if (warning) process.emitWarning(warning, { code: 'SLUICE_UNTESTED_BULLMQ' })
    scripts = new ScriptSet(bullmq, VERSION)
  }
  return scripts
}

/**
 * A BullMQ `BackendFactory`: give it to any class of BullMQ (Queue, Worker, FlowProducer, QueueEvents, …) and the shape
 * that is stored for its queue is obeyed, by stock classes too.
 * @throws UnsupportedVersionError if the installed BullMQ has scripts of another layout
 */
export const createShapedBackend: BackendFactory<ShapedBackend> = (name, opts, connections) =>
  shapedBackend(name, opts, connections, {})

/**
 * The same for Sluice's own classes, with what they ask on top. Made with a cluster, they want a prefix with a hash tag
 * at once ({@link ClusterPrefixError}); a stock class learns of it as ever, from Redis.
 */
export function shapedBackendFactory(options: ShapedBackendOptions): BackendFactory<ShapedBackend> {
  return (name, opts, connections) => {
    refuseUntaggedPrefix(options.deadLetter ? '' : name, opts)
    return shapedBackend(name, opts, connections, options)
  }
}

function shapedBackend(
  name: string,
  opts: QueueBaseOptions,
  connections: Parameters<BackendFactory>[2],
  options: ShapedBackendOptions,
): ShapedBackend {
  const blocks = connections?.blocking === true
  const family = { scripts: installedScripts(), stores: new Map(), options, blocks }
  const plain = createRedisBackend(name, opts, connections) as RedisQueueBackend
  // The plain backend is only asked for its connections; it keeps listening to them, and an 'error' that nobody hears throws.
  plain.on('error', () => {})
  const toKey = (type: string) => plain.toKey(type)
  return new ShapedBackend(plain.connection, name, plain.keys, toKey, opts, plain.blockingConnection, true, family)
}

/** Dead letters and the jobs that failed lie in one slot only by their prefix. @param name of the queue, where it may hold the tag */
function refuseUntaggedPrefix(name: string, opts: QueueBaseOptions): void {
  const { connection, prefix = 'bull' } = opts as QueueBaseOptions & { prefix?: string }
  const { isCluster } = (connection ?? {}) as { isCluster?: boolean }
  if (isCluster && !/^[^{]*\{[^}]+\}/.test(`${prefix}:${name}`)) throw new ClusterPrefixError(prefix)
}

/**
 * What a class with a `shape` option asks of its backend.
 * @throws InvalidShapeError, InvalidRateError
 */
export function declaringBackendOptions(shape: Shape | undefined, declarer = defaultDeclarer()): ShapedBackendOptions {
  if (shape === undefined) return { alwaysShaped: true }
  return { alwaysShaped: true, declaration: { ...encodeShape(shape), declarer } }
}
