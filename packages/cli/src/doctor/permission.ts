import { isDenied } from 'sluice/internal'
import type { Finding, Findings } from './finding.ts'

/** Runs a check; if the user may not run it, reports the rights that it needs. */
export async function permitted(findings: Findings, needs: string, run: () => Promise<Finding[]>): Promise<Finding[]> {
  try {
    return await run()
  } catch (error) {
    if (!isDenied(error)) throw error
    return [findings.skipped(`the user may not: ${error.message}`, `needs ${needs}`)]
  }
}
