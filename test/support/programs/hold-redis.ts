import { startRedis } from '../../../workers/services/redis.ts'

/** Starts a Redis, reports it to its parent and never stops it. The message `exit` ends the process normally. */
const redis = await startRedis({ ignoreGiven: true })
process.on('message', () => process.exit(0))
process.send?.({ type: 'ready', url: redis.url, port: redis.port, pid: redis.pid })
