import { Redis } from 'ioredis'
import { connectionTo } from '../figure.ts'
import { serve } from '../fleet/calls.ts'
import { openSender, type Sender } from './contenders.ts'
import { Observer } from './observer.ts'
import type { Closed, SenderMethods, SenderSpec } from './protocol.ts'

// A process of a fleet that calls the server.

class Sending {
  readonly #client: Redis
  readonly #observer: Observer | undefined
  readonly #sender: Sender

  private constructor(client: Redis, observer: Observer | undefined, sender: Sender) {
    this.#client = client
    this.#observer = observer
    this.#sender = sender
  }

  static async open(spec: SenderSpec): Promise<Sending> {
    const client = new Redis(connectionTo(spec.redis))
    const observer = spec.observed ? await Observer.start(client) : undefined
    const send = (job: string) => {
      observer?.started(job)
      return fetch(`${spec.url}/${job}`)
    }
    return new Sending(client, observer, await openSender(spec, send, observer))
  }

  async seen() {
    return (await this.#observer?.take()) ?? { starts: [], pausesUs: [], roundTrips: [] }
  }

  async close(): Promise<Closed> {
    const closed = await this.#sender.close()
    this.#observer?.stop()
    this.#client.disconnect()
    return closed
  }
}

let sending: Sending | undefined

function opened(): Sending {
  if (!sending) throw new Error('expected that open was called before')
  return sending
}

serve<SenderMethods>({
  open: async (spec) => {
    sending = await Sending.open(spec)
  },
  seen: () => opened().seen(),
  close: () => opened().close(),
})
