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

/** @type {import('../wire.d.ts').Api['getFleet']} */
export const getFleet = (terms) => get(terms ? `api/fleet?${new URLSearchParams(queryOf(terms))}` : 'api/fleet')

/** @type {import('../wire.d.ts').Api['getFacts']} */
export const getFacts = () => get('api/fleet?count=0')

/** @type {import('../wire.d.ts').Api['getQueue']} */
export const getQueue = (name) => get(queue(name))

/** @type {import('../wire.d.ts').Api['getSeries']} */
export const getSeries = (name, since) => get(`${queue(name)}/series?since=${since.toISOString()}`)

/** @type {import('../wire.d.ts').Api['getJobs']} */
export const getJobs = (name, state, start, size) => get(`${queue(name)}/jobs?${pageOf({ state }, start, size)}`)

/** @type {import('../wire.d.ts').Api['getFailed']} */
export const getFailed = (name, failedReason, start, size) =>
  get(`${queue(name)}/jobs?${pageOf({ failedReason }, start, size)}`)

/** @type {import('../wire.d.ts').Api['getFailedReasons']} */
export const getFailedReasons = (name) => get(`${queue(name)}/failed-reasons`)

/** @type {import('../wire.d.ts').Api['getDead']} */
export const getDead = (name, from, start, size) => get(`${queue(name)}/dead?${pageOf({ from }, start, size)}`)

/** @type {import('../wire.d.ts').Api['getJob']} */
export const getJob = (name, id) => get(`${queue(name)}/jobs/${segment(id)}`)

/** @type {import('../wire.d.ts').Api['getExplanation']} */
export const getExplanation = (name, id) => get(`${queue(name)}/jobs/${segment(id)}/explain`)

/** @type {import('../wire.d.ts').Api['findJob']} */
export const findJob = (id) => get(`api/jobs/${encodeURIComponent(id)}`)

/** @type {import('../wire.d.ts').Api['getGroups']} */
export const getGroups = (name) => get(`${queue(name)}/groups`)

/** @type {import('../wire.d.ts').Api['getGroup']} */
export const getGroup = (name, id) => get(`${queue(name)}/groups/${segment(id)}`)

/** @type {import('../wire.d.ts').Api['getLimitValues']} */
export const getLimitValues = (name) => get(`${queue(name)}/limits`)

/** @type {import('../wire.d.ts').Api['getLimitValue']} */
export const getLimitValue = (name, limit, keys) =>
  get(`${queue(name)}/limits/${segment(limit)}?${new URLSearchParams({ keys: JSON.stringify(keys) })}`)

/**
 * A part of a list.
 * @param {Readonly<Record<string, string>>} of
 * @param {number} start
 * @param {number} size
 */
function pageOf(of, start, size) {
  return new URLSearchParams({ ...of, start: String(start), count: String(size) })
}

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
