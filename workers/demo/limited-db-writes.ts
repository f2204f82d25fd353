// The database worker of the comparison: BullMQ's own limiter instead of the meter.
import { databaseWritesProgram } from '../../src/programs/db-writes/program.ts'
import { runLimited } from './limited-worker.ts'

await runLimited(databaseWritesProgram)
