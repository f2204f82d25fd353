import type { Finding, Findings } from './finding.ts'

/** Inside a script, Redis 7.0 words the error differently. */
const DENIED = /^NOPERM\b|The user executing the script can't/
/** Managed servers may disable or rename administrative commands. */
const UNKNOWN = /^ERR unknown (sub)?command/i

/** Whether Redis reports that the user, or any user, may not run the command. */
export function isDenied(error: unknown): error is Error {
  return error instanceof Error && (DENIED.test(error.message) || UNKNOWN.test(error.message))
}

/** Runs a check; if the user may not run it, reports the rights that it needs. */
export async function permitted(findings: Findings, needs: string, run: () => Promise<Finding[]>): Promise<Finding[]> {
  try {
    return await run()
  } catch (error) {
    if (!isDenied(error)) throw error
    return [findings.skipped(`the user may not: ${error.message}`, `needs ${needs}`)]
  }
}
