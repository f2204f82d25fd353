import { configDefaults, defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // test/slow has a configuration of its own.
    exclude: [...configDefaults.exclude, 'test/slow/**'],
    globalSetup: ['test/global-setup.ts'],
    pool: 'forks',
    // Loading everything anew for each of the files would take a quarter of the whole run.
    isolate: false,
    restoreMocks: true,
    maxWorkers: 2,
    // Of the tests of a file that say so (test/support/concurrent.ts): with more, they would keep each other waiting.
    maxConcurrency: 3,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // For an event to come, which is no guarantee: vitest's 1 s is less than a busy machine needs to start a process.
    expect: { poll: { timeout: 20_000 } },
    // A test that passes the second time has a race in it.
    retry: 0,
    // Clean-up registered first runs last, so that test/support sees what the file's own hooks left behind.
    sequence: { hooks: 'stack' },
  },
})
