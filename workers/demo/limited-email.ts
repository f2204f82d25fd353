// The email worker of the comparison: BullMQ's own limiter instead of the meter.
import { emailProgram } from '../../src/programs/email/program.ts'
import { runLimited } from './limited-worker.ts'

await runLimited(emailProgram)
