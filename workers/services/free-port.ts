import { createServer } from 'node:net'

const LOWEST = 20_000
const HIGHEST = 30_000
/** Redis adds this to the port of a cluster's node for the one on which nodes talk to each other. */
const BUS_ABOVE = 10_000
/** Where kernels begin to take the ports of outgoing connections. */
const OUTGOING = 32_768
/**
 * A process takes every sixteenth port only. Test files that run beside each other begin at another one each, so that
 * no file gets the port of a server that another one has stopped for a moment.
 */
const LANES = 16

const lane = Number(process.env.VITEST_POOL_ID ?? 0) % LANES
let tried = Math.floor((Math.random() * (HIGHEST - LOWEST)) / LANES)

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen({ host: '127.0.0.1', port, exclusive: true }, () => server.close(() => resolve(true)))
  })
}

/**
 * A free TCP port of 127.0.0.1, between 20000 and 30000, which this process has not had for a long time. It stays below
 * the range from which kernels take the ports of outgoing connections: a client that reconnects to a stopped server
 * inside that range can be given the server's own port, connect to itself and keep the server from coming back.
 * @param of where that holds for the second port of a cluster's node, too
 */
export async function findFreePort(of?: 'cluster node'): Promise<number> {
  const highest = of === undefined ? HIGHEST : OUTGOING - BUS_ABOVE
  const count = Math.floor((highest - LOWEST) / LANES)
  for (let attempt = 0; attempt < 200; attempt++) {
    tried += 1
    const port = LOWEST + lane + LANES * (tried % count)
    if ((await isFree(port)) && (of === undefined || (await isFree(port + BUS_ABOVE)))) return port
  }
  throw new Error(`expected a free port between ${LOWEST} and ${highest} on 127.0.0.1, found none in 200 tries`)
}
