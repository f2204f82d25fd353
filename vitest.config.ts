import { configDefaults, defineConfig } from 'vitest/config'

/**
 * The tests that compute for long and in which no time is real. They can run beside all others at the lowest priority,
 * and then use what those leave while they wait: `.ci/run` starts both parts.
 */
const COMPUTING = [
  'test/{,limits/,groups/}model/**/*.test.ts',
  'test/ageing/{order,places}.test.ts',
  'test/feedback/simulation.test.ts',
  'test/package/{documents,pack,patterns}.test.ts',
  'test/sharding/stories.test.ts',
]
const { TEST_PART: part } = process.env

export default defineConfig({
  // The packages import each other by their names.
  resolve: { tsconfigPaths: true },
  test: {
    include: part === 'computing' ? COMPUTING : ['{test,packages/*/test}/**/*.test.ts'],
    // test/slow has a configuration of its own.
    exclude: [...configDefaults.exclude, 'test/slow/**', ...(part === 'waiting' ? COMPUTING : [])],
    globalSetup: ['test/global-setup.ts'],
    pool: 'forks',
    // Loading everything anew for each of the files would take a quarter of the whole run.
    isolate: false,
    restoreMocks: true,
    // A list that differs is printed whole, in the message too: what fails once has to be told by its output.
    chaiConfig: { truncateThreshold: 0 },
    maxWorkers: 2,
    // Of the tests of a file that say so (test/support/concurrent.ts): with more, they would keep each other waiting.
    maxConcurrency: 3,
    // Ten times what the slowest tests take. What runs at the lowest priority may have to wait for longer.
    testTimeout: part === 'computing' ? 600_000 : 180_000,
    hookTimeout: part === 'computing' ? 600_000 : 180_000,
    // For an event to come, which is no guarantee: vitest's 1 s is less than a busy machine needs to start a process.
    expect: { poll: { timeout: 60_000 } },
    // A test that passes the second time has a race in it.
    retry: 0,
    // Clean-up registered first runs last, so that test/support sees what the file's own hooks left behind.
    sequence: { hooks: 'stack' },
  },
})
