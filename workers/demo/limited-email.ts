// The email worker of the comparison: BullMQ's own limiter instead of the meter.
import { emailProgram } from 'sluice-workers/email'
import { runLimited } from './limited-worker.ts'

await runLimited(emailProgram)
