export type { CommonSettings } from './common-settings.ts'
export { type DepartureRecord, openDepartureLog } from './departure-log.ts'
export { runProgram } from './program.ts'
export type { WorkerProgram } from './worker-program.ts'
