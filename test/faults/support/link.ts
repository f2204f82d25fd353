import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { onTestFinished } from '../../support/concurrent.ts'

const HOST = '127.0.0.1'

/**
 * Passes bytes on to a port of this machine, whatever they mean. The proxy of test/support counts replies, and neither
 * replicas nor the nodes of a cluster answer each other by replies.
 */
export interface Link {
  readonly port: number
  /** Closes every connection; new ones are refused. */
  cut(): void
  /**
   * From now on nothing passes, and no one is told: a network that is gone. New connections open, and are as silent.
   * @param of which connections, by the first bytes that came over them; default all
   */
  silence(of?: (first: Buffer) => boolean): void
  /** Ends the silence. Connections that lost bytes in it are closed. */
  heal(): void
}

/** One connection: what came first over it tells who opened it. */
interface Passage {
  readonly ends: readonly [Socket, Socket]
  first: Buffer | undefined
  isSilent: boolean
}

/** A link to a port of loopback, which may be one that no one listens on yet. It ends with the test. */
export async function startLink(targetPort: number): Promise<Link> {
  const passages = new Set<Passage>()
  let silent: (first: Buffer) => boolean = () => false
  const server = createServer({ noDelay: true }, (opener) => {
    const target = connect({ host: HOST, port: targetPort, noDelay: true })
    const passage: Passage = { ends: [opener, target], first: undefined, isSilent: false }
    passages.add(passage)
    const close = () => {
      // In a network that is gone, no one is told that the other end closed.
      if (passage.isSilent) return
      passages.delete(passage)
      for (const end of passage.ends) end.destroy()
    }
    for (const [from, to] of [
      [opener, target],
      [target, opener],
    ] as const) {
      from.on('error', () => {})
      from.on('close', close)
      from.on('data', (bytes) => {
        if (from === opener && !passage.first) {
          passage.first = bytes
          passage.isSilent ||= silent(bytes)
        }
        if (!passage.isSilent) to.write(bytes)
      })
    }
  })
  const close = (which: (passage: Passage) => boolean) => {
    for (const passage of [...passages].filter(which)) {
      passages.delete(passage)
      for (const end of passage.ends) end.destroy()
    }
  }
  const cut = () => {
    server.close()
    close(() => true)
  }
  onTestFinished(cut)
  // It listens for as long as anyone connects to it, so any port will do.
  server.listen(0, HOST)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    cut,
    silence: (of = () => true) => {
      silent = of
      for (const passage of passages) passage.isSilent ||= passage.first !== undefined && of(passage.first)
    },
    heal: () => {
      silent = () => false
      close(({ isSilent }) => isSilent)
    },
  }
}
