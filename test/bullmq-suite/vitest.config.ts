import { defineConfig } from 'vitest/config'
import { installedBullmq } from './installed-bullmq.ts'
import { OutcomeReporter } from './outcome-reporter.ts'
import { readRunSettings } from './run-settings.ts'

/** Vitest for one test file of BullMQ; started by the runner only. Timeouts are those of BullMQ's own configuration. */
const settings = readRunSettings(process.env)

export default defineConfig({
  plugins: [installedBullmq(settings)],
  test: {
    include: [settings.testFile],
    ...(settings.namePattern === undefined ? {} : { testNamePattern: new RegExp(settings.namePattern) }),
    setupFiles: settings.setupFiles,
    testTimeout: 10_000,
    hookTimeout: 10_000,
    pool: 'forks',
    maxWorkers: 1,
    fileParallelism: false,
    sequence: { concurrent: false },
    reporters: [new OutcomeReporter(settings.reportFile)],
    // Inlined, BullMQ passes through the plugin and through vi.mock, as its sources do in its own repository.
    server: { deps: { inline: [/[\\/]bullmq[\\/]dist[\\/]esm[\\/]/] } },
  },
})
