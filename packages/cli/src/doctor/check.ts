import type { Redis } from 'ioredis'
import type { Inspector, QueueStatus } from 'sluice/inspect'
import { type InfoFields, infoFields, isDenied, type Role } from 'sluice/internal'

/** The input of the checks. */
export interface Examined {
  /** A client of the user that is checked. */
  readonly client: Redis
  readonly inspector: Inspector
  readonly prefix: string
  readonly limitsPrefix: string
  /** The role whose rights the user needs. */
  readonly role: Role
  /** The queues to check; some of them may not exist. */
  readonly queues: readonly string[]
  /** How long a worker may be connected without having reported, s. */
  readonly newWorkerS: number
  /** The clock of this machine, ms. */
  readonly nowMs: () => number
}

export interface ExaminedQueue extends Examined {
  readonly queue: string
  readonly status: QueueStatus
}

/** A check of the server, or of this process. Rejects only if Redis is unavailable. */
export type Check = (examined: Examined) => Promise<Finding[]>

/** A check of a queue. */
export type QueueCheck = (examined: ExaminedQueue) => Promise<Finding[]>

/**
 * How bad a finding is. `note`: out of the ordinary, but meant to be so. `skipped`: the check could not run; the finding
 * says what it needs.
 */
export type Level = 'ok' | 'note' | 'warning' | 'error' | 'skipped'

export interface Finding {
  /** The check's name, such as `eviction`. */
  readonly check: string
  readonly level: Level
  /** The queue; undefined for a finding about the server or this process. */
  readonly queue?: string
  /** One sentence that states the fact. */
  readonly message: string
  /** What to do about it; '' if nothing needs to be done. */
  readonly remedy: string
}

export class Findings {
  readonly #check: string
  readonly #queue: string | undefined

  constructor(check: string, queue?: string) {
    this.#check = check
    this.#queue = queue
  }

  ok(message: string): Finding {
    return this.#of('ok', message, '')
  }

  note(message: string, remedy: string): Finding {
    return this.#of('note', message, remedy)
  }

  warning(message: string, remedy: string): Finding {
    return this.#of('warning', message, remedy)
  }

  error(message: string, remedy: string): Finding {
    return this.#of('error', message, remedy)
  }

  skipped(message: string, remedy: string): Finding {
    return this.#of('skipped', message, remedy)
  }

  #of(level: Level, message: string, remedy: string): Finding {
    const queue = this.#queue === undefined ? {} : { queue: this.#queue }
    return { check: this.#check, level, ...queue, message, remedy }
  }
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

export async function serverInfo(client: Redis, section: string): Promise<InfoFields> {
  return infoFields(await client.info(section))
}

/** A setting of the server; undefined if it has none of this name. */
export async function serverSetting(client: Redis, name: string): Promise<string | undefined> {
  const reply = (await client.config('GET', name)) as string[]
  return reply[1]
}

const BATCH = 500

/** The replies to many commands, in few round trips. */
export async function answers(client: Redis, commands: readonly (readonly string[])[]): Promise<unknown[]> {
  const found: unknown[] = []
  for (let start = 0; start < commands.length; start += BATCH) {
    const replies = await client.pipeline(commands.slice(start, start + BATCH).map((command) => [...command])).exec()
    for (const [error, reply] of replies ?? []) {
      if (error) throw error
      found.push(reply)
    }
  }
  return found
}

const SHOWN = 5

/** The first few of a list, and how many there are. */
export function shownIds(ids: readonly string[]): string {
  const more = ids.length > SHOWN ? `, … (${ids.length} in all)` : ''
  return ids.slice(0, SHOWN).join(', ') + more
}
