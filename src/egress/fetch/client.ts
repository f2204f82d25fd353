import { Agent, buildConnector } from 'undici'
import { publicLookup, publicPeersOnly } from './guard.ts'
import { withoutInterimAnswers } from './interim-answers.ts'
import type { FetchSettings } from './options.ts'

/** The connections of one {@link egressFetch}. */
export interface Clients {
  /** For targets: the configuration is trusted, wherever it leads. */
  readonly targets: Agent
  /** For URLs of jobs: reaches public addresses only. */
  readonly urls: Agent
}

/** Opens both clients. Neither retries, follows redirects, decompresses bodies or uses the proxy of the environment. */
export function openClients({ timeoutMs, lookup }: FetchSettings): Clients {
  // One limit covers the whole attempt; these would be further ones.
  const limits = { headersTimeout: 0, bodyTimeout: 0 }
  const publicOnly = publicPeersOnly(buildConnector({ timeout: timeoutMs, lookup: publicLookup(lookup) }))
  return {
    targets: new Agent({ ...limits, connect: finalAnswersOnly(buildConnector({ timeout: timeoutMs })) }),
    urls: new Agent({ ...limits, connect: finalAnswersOnly(publicOnly) }),
  }
}

function finalAnswersOnly(connect: buildConnector.connector): buildConnector.connector {
  return (options, callback) => {
    connect(options, (...[error, socket]) => {
      if (error) callback(error, null)
      else callback(null, withoutInterimAnswers(socket))
    })
  }
}
