import type { ShapedBackend } from '../backend/backend.ts'
import { OBLITERATED } from '../redis/keys.ts'
import { type Listening, listenForWake } from '../redis/wake-channel.ts'

interface Listener {
  /** Something changed: the message names one worker, or is for all. */
  wakes(message: string): void
  closing(): boolean
  onError(error: Error): void
}

export interface WakeListening {
  /** As in {@link Listening}; -Infinity before it listens. */
  heardAtMs(): number
  stop(): void
}

/**
 * Changes of a shape are published: workers that sleep until a slot, or because no shape is stored, ask again at once.
 */
export function listenToShape(backend: ShapedBackend, channel: string, listener: Listener): WakeListening {
  let listening: Listening | undefined
  const onMessage = (message: string) => {
    if (message === OBLITERATED) backend.store.forget()
    listener.wakes(message)
  }
  backend.client
    .then((client) => {
      if (listener.closing()) return
      listening = listenForWake(client, channel, onMessage)
      return listening.subscribed
    })
    .catch((error: Error) => {
      if (!listener.closing()) listener.onError(error)
    })
  return {
    heardAtMs: () => listening?.heardAtMs() ?? Number.NEGATIVE_INFINITY,
    stop: () => listening?.stop(),
  }
}

/** A message that names a worker (by its UUID) is for that worker alone. */
export function isMeantFor(workerId: string, message: string): boolean {
  return !message.includes('-') || message === workerId
}
