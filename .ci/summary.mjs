// Prints what a run came to. Arguments: the folder of vitest's JSON reports, one for each part of the tests, then the names
// of the steps that failed; the step of a part is named as its report.
import { existsSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'

const PARTS = ['waiting', 'computing']
const [folder = '', ...failedSteps] = process.argv.slice(2)

/** Each failed test or file with its errors, for the end of the output. @type {string[]} */
const failures = []

/** @param {string} part */
function countsOf(part) {
  const reportFile = join(folder, `${part}.json`)
  const report = existsSync(reportFile) ? JSON.parse(readFileSync(reportFile, 'utf8')) : undefined
  const passed = report?.numPassedTests ?? 0
  const failedTests = report?.numFailedTests ?? 0
  // A file can fail without a failed test: it does not load, or its clean-up finds a leak.
  const failedFiles = (report?.testResults ?? []).filter(
    ({ status, assertionResults }) => status === 'failed' && !assertionResults.some((test) => test.status === 'failed'),
  )
  const failed = failedTests + failedFiles.length
  for (const { name, assertionResults } of report?.testResults ?? [])
    for (const { status, fullName, failureMessages } of assertionResults)
      if (status === 'failed')
        failures.push(`${relative('', name)}: ${fullName}\n${failureMessages.join('\n').slice(0, 2000)}`)
  for (const { name, message } of failedFiles) failures.push(`${relative('', name)}\n${message}`)
  // The run as a whole can fail as well, or end before there is a report.
  const isUnseen = failed === 0 && (failedSteps.includes(part) || passed === 0)
  return { passed, failed: isUnseen ? 1 : failed }
}

const counts = PARTS.map(countsOf)
const passed = counts.reduce((sum, part) => sum + part.passed, 0)
const otherSteps = failedSteps.filter((step) => !PARTS.includes(step))
const failed = counts.reduce((sum, part) => sum + part.failed, otherSteps.length)

for (const failure of failures) process.stdout.write(`\n${failure}\n`)
if (failedSteps.length > 0) process.stdout.write(`\nFailed: ${failedSteps.join(', ')}\n`)
process.stdout.write(`\n${passed} passed, ${failed} failed\n`)
process.exitCode = failed > 0 ? 1 : 0
