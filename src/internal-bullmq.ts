// As internal.ts, for code that loads BullMQ.

export { CALLS_REMEMBERED } from './departure/exchange.ts'
export { blockedKeys, limiterOf, limitNames, storedLimit } from './limits/stored-limits.ts'
export { captureBullmqScripts, checkBullmqScripts } from './redis/bullmq-scripts.ts'
export { installedScripts } from './redis/scripts.ts'
