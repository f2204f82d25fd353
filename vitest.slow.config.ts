import { configDefaults, defineConfig, mergeConfig } from 'vitest/config'
import base from './vitest.config.ts'

const { test, ...shared } = base
const { include: _include, exclude: _exclude, ...settings } = test ?? {}

/** The long runs: everything as in the quick suite, one file at a time and with room to breathe. */
export default mergeConfig(
  defineConfig({ ...shared, test: settings }),
  defineConfig({
    test: { include: ['test/slow/**/*.test.ts'], exclude: configDefaults.exclude, maxWorkers: 1, testTimeout: 600_000 },
  }),
)
