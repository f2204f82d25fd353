// Prints what a run came to. Arguments: vitest's JSON report, then the names of the steps that failed.
import { existsSync, readFileSync } from 'node:fs'

const [reportFile = '', ...failedSteps] = process.argv.slice(2)
const report = existsSync(reportFile) ? JSON.parse(readFileSync(reportFile, 'utf8')) : undefined
const passed = report?.numPassedTests ?? 0
const failedTests = report?.numFailedTests ?? 0

// A file can fail without a failed test: it does not load, or its clean-up finds a leak.
const failedFiles = (report?.testResults ?? []).filter(
  ({ status, assertionResults }) => status === 'failed' && !assertionResults.some((test) => test.status === 'failed'),
)
const suiteFailures = failedTests + failedFiles.length
const otherSteps = failedSteps.filter((step) => step !== 'test')
// The run as a whole can fail as well, or end before there is a report.
const runFailed = failedSteps.includes('test') && suiteFailures === 0 ? 1 : 0
const failed = suiteFailures + runFailed + otherSteps.length

if (failedSteps.length > 0) process.stdout.write(`\nFailed: ${failedSteps.join(', ')}\n`)
process.stdout.write(`\n${passed} passed, ${failed} failed\n`)
process.exitCode = failed > 0 || passed === 0 ? 1 : 0
