#!/usr/bin/env node
// The command line. `--help` lists the commands; docs/cli.md is the manual.
import { plainText } from '../plain-text.ts'
import { runCommandLine } from './program.ts'

// An override that hides what programs declare is what whoever is here may just have made.
process.removeAllListeners('warning')
process.on('warning', (warning: Error & { code?: string }) => {
  if (warning.code !== 'SLUICE_OVERRIDE') process.stderr.write(`sluice: warning: ${plainText(warning.message)}\n`)
})

// Whoever reads has gone, such as `head`: nobody is left to tell.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  process.exit()
})

process.exitCode = await runCommandLine(process.argv.slice(2))
