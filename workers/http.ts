// Sends the jobs of a queue as HTTP requests to configured targets. `--help` lists the settings.
import { httpProgram } from '../src/programs/http/program.ts'
import { runProgram } from '../src/programs/program.ts'

process.exit(await runProgram(httpProgram))
