// Runs the jobs of a queue as configured PostgreSQL statements, each once. `--help` lists the settings.
import { databaseWritesProgram } from '../src/programs/db-writes/program.ts'
import { runProgram } from '../src/programs/program.ts'

process.exit(await runProgram(databaseWritesProgram))
