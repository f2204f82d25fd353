import { afterEach } from 'vitest'
import { type EgressFetch, type EgressFetchOptions, egressFetch } from '../src/index.ts'

/** Builds fetches for the tests of a file, and closes them after each. */
export function useFetches(): (options: EgressFetchOptions) => EgressFetch {
  const open: EgressFetch[] = []
  afterEach(async () => {
    for (const fetch of open.splice(0)) await fetch.close()
  })
  return (options) => {
    const fetch = egressFetch(options)
    open.push(fetch)
    return fetch
  }
}
