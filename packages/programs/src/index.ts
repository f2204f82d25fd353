export { Closers } from './closers.ts'
export { checkRedis, decidingConnection, hostOf, inspectionConnection, workerConnection } from './connection.ts'
export { DestinationRefusedError, InvalidPayloadError, reasonOf, SettingsError, StartError } from './errors.ts'
export { createErrorLog, createLogger, type Logger } from './log.ts'
export { redisSettings, runSettings } from './program-settings.ts'
export { createScrubber } from './redact.ts'
export { EXIT, listenToProcess, type Runnable, run, type Started } from './run.ts'
export {
  oneOf,
  readBy,
  readSettings,
  type SettingsOf,
  type SettingTable,
  secretTexts,
  textLike,
  urlWith,
  wholeNumber,
  yesOrNo,
} from './settings.ts'
