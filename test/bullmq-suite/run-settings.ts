import type { InstalledBullmqOptions } from './installed-bullmq.ts'

/** Handed from the runner to the vitest configuration of one run. */
export interface RunSettings extends InstalledBullmqOptions {
  /** Test file, relative to the stage. */
  testFile: string
  /** Run only tests whose full name matches; all without it. */
  namePattern?: string
  setupFiles: string[]
  /** Where the reporter writes the outcome. */
  reportFile: string
}

export const RUN_SETTINGS_VARIABLE = 'BULLMQ_SUITE_SETTINGS'

export function readRunSettings(env: NodeJS.ProcessEnv): RunSettings {
  const text = env[RUN_SETTINGS_VARIABLE]
  if (!text) throw new Error(`${RUN_SETTINGS_VARIABLE} is not set: start the suite with npm run test:bullmq`)
  return JSON.parse(text) as RunSettings
}
