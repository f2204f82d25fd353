#!/usr/bin/env node
// The command line. `--help` lists the commands; docs/cli.md is the manual.
import { plainText } from 'sluice/internal'
import { runCommandLine } from './program.ts'

// No warning that an override hides declared values: the user may have just set it.
process.removeAllListeners('warning')
process.on('warning', (warning: Error & { code?: string }) => {
  if (warning.code !== 'SLUICE_OVERRIDE') process.stderr.write(`sluice: warning: ${plainText(warning.message)}\n`)
})

// The reader of stdout, such as `head`, has closed it: the rest of the output is not needed.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  process.exit()
})

process.exitCode = await runCommandLine(process.argv.slice(2))
