import { createGateway, type Gateway, type GatewayOptions } from '../../http/index.ts'
import type { Closers } from '../closers.ts'
import { createErrorLog, type Logger } from '../log.ts'
import type { GatewaySettings } from './settings.ts'

/** Opens the gateway of a configuration. @throws InvalidGatewayOptionError; Error if Redis does not answer */
export async function openGateway(settings: GatewaySettings, log: Logger, closers: Closers): Promise<Gateway> {
  const { redisUrl, prefix, config } = settings
  const gateway = createGateway({
    ...(config.gateway as unknown as GatewayOptions),
    connection: { url: redisUrl },
    prefix,
    onError: createErrorLog(log),
  })
  closers.push(() => gateway.close())
  await gateway.waitUntilReady()
  return gateway
}
