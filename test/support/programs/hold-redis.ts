import { startRedis } from '../../../workers/services/redis.ts'

/** Starts a Redis, tells its parent about it and never stops it. The message `exit` ends the process in good order. */
const redis = await startRedis({ ignoreGiven: true })
process.on('message', () => process.exit(0))
process.send?.({ type: 'ready', url: redis.url, port: redis.port, pid: redis.pid })
