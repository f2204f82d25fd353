import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface ListeningServer {
  readonly port: number
  /** Closes all its connections as well. */
  close(): Promise<void>
}

/** @throws the system's error if it cannot listen there */
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
