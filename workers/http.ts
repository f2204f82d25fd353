// Sends the jobs of a queue as HTTP requests to configured targets. `--help` lists the settings.

import { runProgram } from 'sluice-workers'
import { httpProgram } from 'sluice-workers/http'

process.exit(await runProgram(httpProgram))
