// Sends the jobs of a queue as mail over SMTP. `--help` lists the settings.
import { emailProgram } from '../src/programs/email/program.ts'
import { runProgram } from '../src/programs/program.ts'

process.exit(await runProgram(emailProgram))
