// Runs the jobs of a queue as configured PostgreSQL statements, each once. `--help` lists the settings.

import { runProgram } from 'sluice-workers'
import { databaseWritesProgram } from 'sluice-workers/db-writes'

process.exit(await runProgram(databaseWritesProgram))
