// Takes jobs over HTTP into bounded queues. `--help` lists the settings, `--new-token NAME` creates a token.
import { runGateway } from '../src/programs/gateway/program.ts'

process.exit(await runGateway())
