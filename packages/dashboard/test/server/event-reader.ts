import { onTestFinished } from '../../../../test/support/concurrent.ts'

/** An event as a browser would hand it on. */
export interface ServerEvent {
  readonly event: string
  readonly id: string | undefined
  // biome-ignore lint/suspicious/noExplicitAny: what it holds is what tests look at
  readonly data: any
}

/** A reader of server-sent events. */
export interface EventReader {
  /** The next event, of a kind where one is given; undefined when the stream has ended. */
  next(kind?: string): Promise<ServerEvent | undefined>
  /** Goes away. */
  close(): void
}

/** Opens a stream of events; it is closed with the test. @throws where it is refused */
export async function readEvents(url: string, headers: Record<string, string> = {}): Promise<EventReader> {
  const gone = new AbortController()
  const close = () => gone.abort()
  onTestFinished(close)
  const answer = await fetch(url, { headers, signal: gone.signal })
  if (answer.status !== 200 || !answer.body) throw new Error(`expected a stream, got ${answer.status}`)
  // Locked at once: fetch cancels a body that has no reader yet when its response is collected as garbage.
  const events = eventsOf(answer.body.pipeThrough(new TextDecoderStream()))
  return {
    close,
    async next(kind) {
      for (;;) {
        const { value, done } = await events.next().catch(() => ({ value: undefined, done: true }) as const)
        if (done || kind === undefined || value.event === kind) return value
      }
    },
  }
}

async function* eventsOf(chunks: ReadableStream<string>): AsyncGenerator<ServerEvent, undefined> {
  let text = ''
  for await (const chunk of chunks) {
    const frames = (text + chunk).split('\n\n')
    text = frames.pop() ?? ''
    for (const frame of frames) {
      const fields = new Map(frame.split('\n').map((line) => line.split(/: (.*)/s, 2) as [string, string]))
      const data = fields.get('data')
      if (data === undefined) continue
      yield { event: fields.get('event') ?? 'message', id: fields.get('id'), data: JSON.parse(data) }
    }
  }
}
