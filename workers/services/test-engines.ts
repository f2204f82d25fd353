// `npm run test:engines`: the suite once on each engine; arguments go to vitest.
import { engineEnvironment, engines } from './engines.ts'
import { runSuite } from './run-suite.ts'

const outcomes: string[] = []
for (const engine of engines) {
  process.stdout.write(`\n${engine.name}\n`)
  try {
    const code = await runSuite(await engineEnvironment(engine), process.argv.slice(2))
    if (code !== 0) process.exitCode = 1
    outcomes.push(`${engine.name}: ${code === 0 ? 'passed' : `failed (exit code ${code})`}`)
  } catch (error) {
    process.exitCode = 1
    outcomes.push(`${engine.name}: not run: ${(error as Error).message}`)
  }
}
process.stdout.write(`\n${outcomes.join('\n')}\n`)
