import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A server that listens. */
export interface ListeningServer {
  readonly port: number
  /** Ends every connection with it. */
  close(): Promise<void>
}

/** @throws the error of the system where it can not listen there */
export async function listenAt(server: Server, port: number, host: string): Promise<ListeningServer> {
  server.listen(port, host)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
