import type { Finding, Findings } from './finding.ts'

/** Within a script Redis 7.0 has other words for it. */
const DENIED = /^NOPERM\b|The user executing the script can't/
/** Servers of others have commands of the administration taken away, or renamed. */
const UNKNOWN = /^ERR unknown (sub)?command/i

/** Whether Redis says that the user may not, or that nobody may. */
export function isDenied(error: unknown): error is Error {
  return error instanceof Error && (DENIED.test(error.message) || UNKNOWN.test(error.message))
}

/** Runs a check, or says what it needs where the user may not run it. */
export async function permitted(findings: Findings, needs: string, run: () => Promise<Finding[]>): Promise<Finding[]> {
  try {
    return await run()
  } catch (error) {
    if (!isDenied(error)) throw error
    return [findings.skipped(`the user may not: ${error.message}`, `needs ${needs}`)]
  }
}
