import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'sluice-programs'
import type { Middleware } from '../index.ts'

/** Logs one line per response, without path, headers or body: callers put secrets there. */
export class RequestLog {
  readonly #log: Logger
  readonly #callers = new WeakMap<object, string>()

  constructor(log: Logger) {
    this.#log = log
  }

  /** Records the caller. Put it behind the middleware that authenticates. */
  readonly middleware: Middleware = {
    enter: ({ raw, identity }) => {
      if (identity) this.#callers.set(raw as object, identity.name)
      return {}
    },
  }

  /** Writes the line, at level debug. */
  write(request: FastifyRequest, reply: FastifyReply): void {
    if (!this.#log.isLevelEnabled('debug')) return
    const caller = this.#callers.get(request)
    const { method } = request
    this.#log.debug(
      {
        requestId: request.id,
        ...{ method, status: reply.statusCode, ms: Math.round(reply.elapsedTime * 10) / 10 },
        ...(caller !== undefined && { caller }),
      },
      'answered',
    )
  }
}
