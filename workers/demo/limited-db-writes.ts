// The database worker of the comparison: BullMQ's own limiter instead of the meter.
import { databaseWritesProgram } from 'sluice-workers/db-writes'
import { runLimited } from './limited-worker.ts'

await runLimited(databaseWritesProgram)
