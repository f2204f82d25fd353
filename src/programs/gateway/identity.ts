import { type Door, isWorldReadable, onlyFrom, type TokenDoor, tokens } from '../../http/index.ts'
import type { Closers } from '../closers.ts'
import { reasonOf } from '../errors.ts'
import type { Logger } from '../log.ts'
import type { GatewaySettings } from './settings.ts'

/** The doors that authenticate callers. @throws InvalidTokenFileError, InvalidInputError */
export function identityDoors(settings: GatewaySettings, log: Logger, closers: Closers): Door[] {
  const { tokenFile, trustProxy, trustProxyReason } = settings
  const doors: Door[] = []
  // A reason says that the proxies authenticate callers: then only requests from them are accepted.
  if (trustProxyReason !== '' && trustProxy.length > 0) {
    log.warn({ trustProxy, reason: trustProxyReason }, 'who comes from these proxies is believed')
    doors.push(onlyFrom(trustProxy))
  }
  if (tokenFile !== '') doors.push(openTokens(tokenFile, log, closers))
  return doors
}

function openTokens(file: string, log: Logger, closers: Closers): TokenDoor {
  const door = tokens({
    file,
    onReload: (result) => {
      if ('tokens' in result) log.info({ file, tokens: result.tokens }, 'tokens were read again')
      else log.error({ file, reason: reasonOf(result.error) }, 'token file is wrong: the tokens stay as they were')
    },
  })
  closers.push(() => door.close())
  if (isWorldReadable(file)) log.warn({ file }, 'everybody on this machine can read the token file: chmod 600')
  const reload = () => void door.reload()
  process.on('SIGHUP', reload)
  closers.push(() => void process.off('SIGHUP', reload))
  return door
}
