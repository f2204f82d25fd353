import type { ShapedBackend } from '../backend/backend.ts'
import { OBLITERATED } from '../redis/keys.ts'
import { listenForWake } from '../redis/wake-channel.ts'

interface Listener {
  /** Something changed: the message names one worker, or is for all. */
  wakes(message: string): void
  closing(): boolean
  onError(error: Error): void
}

/**
 * Changes of a shape are published: workers that sleep until a slot, or because no shape is stored, ask again at once.
 * @returns stops listening
 */
export function listenToShape(backend: ShapedBackend, channel: string, listener: Listener): () => void {
  let stop = () => {}
  const onMessage = (message: string) => {
    if (message === OBLITERATED) backend.store.forget()
    listener.wakes(message)
  }
  backend.client
    .then((client) => {
      if (listener.closing()) return
      const listening = listenForWake(client, channel, onMessage)
      stop = listening.stop
      return listening.subscribed
    })
    .catch((error: Error) => {
      if (!listener.closing()) listener.onError(error)
    })
  return () => stop()
}

/** A message that names a worker (by its UUID) is for that worker alone. */
export function isMeantFor(workerId: string, message: string): boolean {
  return !message.includes('-') || message === workerId
}
