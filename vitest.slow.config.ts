import { configDefaults, defineConfig, mergeConfig } from 'vitest/config'
import base from './vitest.config.ts'

/** The long runs: everything as in the quick suite, one file at a time and with room to breathe. */
export default defineConfig((env) => {
  const { test, ...shared } = base(env)
  const { include: _include, exclude: _exclude, ...settings } = test ?? {}
  return mergeConfig(
    { ...shared, test: settings },
    {
      test: {
        include: ['test/slow/**/*.test.ts'],
        exclude: configDefaults.exclude,
        maxWorkers: 1,
        testTimeout: 600_000,
      },
    },
  )
})
