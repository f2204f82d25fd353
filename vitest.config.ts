import { configDefaults, defineConfig } from 'vitest/config'

/**
 * The tests that compute for long and in which no time is real. They can run beside all others at the lowest priority,
 * and then use what those leave while they wait: `.ci/run` starts both parts.
 */
const COMPUTING = [
  'test/{,limits/,groups/,keys/}model/**/*.test.ts',
  'test/ageing/{order,places}.test.ts',
  'test/feedback/simulation.test.ts',
  'test/package/{documents,pack,patterns}.test.ts',
  'test/sharding/stories.test.ts',
]
/**
 * What `npm test` leaves to `npm run test:all` and to CI: real faults and processes whose rule a faster test holds as
 * well, and what is not the product: its packaging, documents, demo and test services.
 */
const BEYOND = [
  'test/package/{documents,pack,patterns}.test.ts',
  'test/{bullmq-suite,demo,services}/**/*.test.ts',
  'test/examples.test.ts',
  'test/faults/{busy-redis,clock-error,clock-step,cluster,cluster-durability,cluster-failover,durability}.test.ts',
  'test/faults/{failover,features-kept,frozen-worker,half-open,moving-slot,out-of-memory,replica-reads}.test.ts',
  'test/faults/{reshard,rolling-restarts,script-flush,sentinel,slow-connection}.test.ts',
  'test/feedback/fleet/**/*.test.ts',
  'test/model/commands.test.ts',
  'packages/cli/test/{without-redis,simulate/commands,simulate/recorder}.test.ts',
  'packages/dashboard/test/server/program.test.ts',
  'packages/dashboard/test/page/{access,first-load,live,troubles}.test.ts',
  'packages/gateway/test/{kill,attacks/*,program/faults,program/gateway,program/stop}.test.ts',
  'packages/workers/test/{db-outage,email-outage,http-outage,lost-commits,program,refused-start}.test.ts',
]
const { TEST_PART: part } = process.env

// `npm test` runs in the mode `quick`; all else, as a file that is named, is run whole.
export default defineConfig(({ mode }) => ({
  // The packages import each other by their names.
  resolve: { tsconfigPaths: true },
  test: {
    include: part === 'computing' ? COMPUTING : ['{test,packages/*/test}/**/*.test.ts'],
    // test/slow has a configuration of its own.
    exclude: [
      ...[...configDefaults.exclude, 'test/slow/**'],
      ...(part === 'waiting' ? COMPUTING : []),
      ...(mode === 'quick' ? BEYOND : []),
    ],
    globalSetup: ['test/global-setup.ts'],
    pool: 'forks',
    // Loading everything anew for each of the files would take a quarter of the whole run.
    isolate: false,
    restoreMocks: true,
    // A list that differs is printed whole, in the message too: what fails once has to be told by its output.
    chaiConfig: { truncateThreshold: 0 },
    // Those of `npm test` wait for half of their time; CI uses it for what computes.
    maxWorkers: mode === 'quick' ? 5 : part === 'waiting' ? 3 : 2,
    // Of the tests of a file that say so (test/support/concurrent.ts): with more, they would keep each other waiting.
    maxConcurrency: 3,
    // Far more than any test takes, also on a machine with twenty times as much to do: only what hangs is ended.
    testTimeout: 900_000,
    hookTimeout: 900_000,
    // For an event to come, which is no guarantee: vitest's 1 s is less than a busy machine needs to start a process.
    expect: { poll: { timeout: 60_000 } },
    // A test that passes the second time has a race in it.
    retry: 0,
    // Clean-up registered first runs last, so that test/support sees what the file's own hooks left behind.
    sequence: { hooks: 'stack' },
  },
}))
