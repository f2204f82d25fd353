// Sends the jobs of a queue as mail over SMTP. `--help` lists the settings.

import { runProgram } from 'sluice-workers'
import { emailProgram } from 'sluice-workers/email'

process.exit(await runProgram(emailProgram))
