/** The path at which the dashboard is mounted, of which the page is the only document. */
const MOUNT = new URL('.', location.href)

/** A response other than 2xx, or none. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 where there was no response
   * @param {string} message
   * @param {string} [field] of the request that is wrong
   */
  constructor(status, message, field) {
    super(message)
    this.status = status
    this.field = field
  }
}

/**
 * @template T
 * @param {string} path
 * @returns {Promise<T>}
 * @throws {ApiError}
 */
async function get(path) {
  // With fields of its own, it would not be the request that the browser has sent while the page loaded.
  const response = await send(path, { signal: AbortSignal.timeout(15_000) })
  return response.json()
}

/**
 * @param {string} path
 * @param {object} body
 * @returns {Promise<void>}
 * @throws {ApiError}
 */
async function post(path, body) {
  const headers = { 'content-type': 'application/json', accept: 'application/json' }
  await send(path, { method: 'POST', headers, body: JSON.stringify(body) })
}

/**
 * @param {string} path
 * @param {RequestInit} init
 */
async function send(path, init) {
  const response = await fetch(new URL(path, MOUNT), init).catch(() => {
    throw new ApiError(0, 'The dashboard does not answer.')
  })
  if (!response.ok) throw await problemOf(response)
  return response
}

/** @param {Response} response */
async function problemOf(response) {
  const body = await response.json().catch(() => ({}))
  const text = String(body.detail ?? body.title ?? body.message ?? `The dashboard answered ${response.status}.`)
  return new ApiError(response.status, text, typeof body.field === 'string' ? body.field : undefined)
}

/**
 * As src/path-segment.ts writes it: browsers resolve the names `.` and `..`.
 * @param {string} name
 */
const segment = (name) => encodeURIComponent(/^(~|\.{1,2}$)/.test(name) ? `~${name}` : name)

/** @param {string} name */
const queue = (name) => `api/queues/${segment(name)}`

/**
 * @param {import('../wire.d.ts').PageTerms} [terms] the page to show of very many queues
 * @returns {Promise<import('../wire.d.ts').Fleet>}
 */
export const getFleet = (terms) => get(terms ? `api/fleet?${new URLSearchParams(queryOf(terms))}` : 'api/fleet')

/**
 * What is said of the dashboard and of Redis, without any queue.
 * @returns {Promise<import('../wire.d.ts').Fleet>}
 */
export const getFacts = () => get('api/fleet?count=0')

/**
 * @param {string} name
 * @returns {Promise<import('../wire.d.ts').QueueNews>}
 */
export const getQueue = (name) => get(queue(name))

/**
 * @param {string} name
 * @param {Date} since
 * @returns {Promise<{ samples: import('../wire.d.ts').Point[] }>}
 */
export const getSeries = (name, since) => get(`${queue(name)}/series?since=${since.toISOString()}`)

/**
 * @param {string} name
 * @param {string} state
 * @param {number} start
 * @param {number} size
 * @returns {Promise<{ jobs: import('../wire.d.ts').Job[], total: number }>}
 */
export const getJobs = (name, state, start, size) =>
  get(`${queue(name)}/jobs?${new URLSearchParams({ state, start: String(start), count: String(size) })}`)

/**
 * Failed jobs whose reason contains a text.
 * @param {string} name
 * @param {string} failedReason
 * @param {number} start
 * @param {number} size
 * @returns {Promise<{ jobs: import('../wire.d.ts').Job[], total: number, isTotalAtLeast: boolean }>}
 */
export const getFailed = (name, failedReason, start, size) => {
  const query = { failedReason, start: String(start), count: String(size) }
  return get(`${queue(name)}/jobs?${new URLSearchParams(query)}`)
}

/**
 * Why the jobs that failed last have failed.
 * @param {string} name
 * @returns {Promise<import('../wire.d.ts').FailedReasons>}
 */
export const getFailedReasons = (name) => get(`${queue(name)}/failed-reasons`)

/**
 * @param {string} name
 * @param {string} from the dead letter queue
 * @param {number} start
 * @param {number} size
 * @returns {Promise<{ letters: import('../wire.d.ts').Letter[], total: number }>}
 */
export const getDead = (name, from, start, size) =>
  get(`${queue(name)}/dead?${new URLSearchParams({ from, start: String(start), count: String(size) })}`)

/**
 * @param {string} name
 * @param {string} id
 * @returns {Promise<import('../wire.d.ts').JobInDetail>}
 */
export const getJob = (name, id) => get(`${queue(name)}/jobs/${segment(id)}`)

/**
 * @param {string} name
 * @param {string} id
 * @returns {Promise<import('../wire.d.ts').Explained>}
 */
export const getExplanation = (name, id) => get(`${queue(name)}/jobs/${segment(id)}/explain`)

/**
 * The job with this id in each queue that has one.
 * @param {string} id
 * @returns {Promise<{ jobs: import('../wire.d.ts').FoundJob[] }>}
 */
export const findJob = (id) => get(`api/jobs/${encodeURIComponent(id)}`)

/**
 * @param {string} name
 * @returns {Promise<import('../wire.d.ts').Groups>}
 */
export const getGroups = (name) => get(`${queue(name)}/groups`)

/**
 * @param {string} name
 * @param {string} id
 * @returns {Promise<import('../wire.d.ts').GroupInDetail>}
 */
export const getGroup = (name, id) => get(`${queue(name)}/groups/${segment(id)}`)

/**
 * @param {string} name
 * @returns {Promise<import('../wire.d.ts').LimitValues>}
 */
export const getLimitValues = (name) => get(`${queue(name)}/limits`)

/**
 * @param {string} name
 * @param {string} limit
 * @param {Readonly<Record<string, string>>} keys
 * @returns {Promise<import('../wire.d.ts').LimitValue>}
 */
export const getLimitValue = (name, limit, keys) =>
  get(`${queue(name)}/limits/${segment(limit)}?${new URLSearchParams({ keys: JSON.stringify(keys) })}`)

/**
 * @param {string} name
 * @param {object} action
 */
export const act = (name, action) => post(`${queue(name)}/actions`, action)

/** @param {string} token */
export const logIn = (token) => post('login', { token })

export const logOut = () => post('logout', {})

/**
 * @param {string | undefined} name of a queue whose events are wanted, and not those of the fleet
 * @param {import('../wire.d.ts').PageTerms} [terms] the page to show of very many queues
 */
export function eventsUrl(name, terms) {
  const url = new URL('api/events', MOUNT)
  for (const [key, value] of Object.entries(queryOf(terms))) url.searchParams.set(key, value)
  if (name === undefined) return url
  url.searchParams.set('queue', name)
  url.searchParams.set('fleet', 'false')
  return url
}

/**
 * @param {import('../wire.d.ts').PageTerms} [terms]
 * @returns {Record<string, string>}
 */
function queryOf(terms) {
  if (!terms) return {}
  const { start, sort, down, filter, marked } = terms
  return {
    start: String(start),
    sort,
    down: String(down),
    marked: String(marked),
    ...(filter === '' ? {} : { filter }),
  }
}
