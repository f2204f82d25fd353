// Takes jobs over HTTP into bounded queues. `--help` lists the settings, `--new-token NAME` creates a token.
import { runGateway } from 'sluice-gateway/program'

process.exit(await runGateway())
