import { createServer } from 'node:net'

const LOWEST = 20_000
const HIGHEST = 32_000

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen({ host: '127.0.0.1', port, exclusive: true }, () => server.close(() => resolve(true)))
  })
}

/**
 * A free TCP port of 127.0.0.1, between 20000 and 32000. It stays below the range from which kernels take the ports of
 * outgoing connections: a client that reconnects to a stopped server inside that range can be given the server's own
 * port, connect to itself and keep the server from coming back.
 */
export async function findFreePort(): Promise<number> {
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST))
    if (await isFree(port)) return port
  }
  throw new Error(`expected a free port between ${LOWEST} and ${HIGHEST} on 127.0.0.1, found none in 200 tries`)
}
