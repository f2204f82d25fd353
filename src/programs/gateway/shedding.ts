import {
  type Door,
  fleetShedder,
  type HttpRequest,
  processShedder,
  requestsInFlight,
  type ShedderOptions,
  type WatchedQueue,
} from '../../http/index.ts'
import type { GatewayConfig } from './config-file.ts'

/** Sheds by the load of this process, whatever queue is requested. */
export function processDoors({ shedding }: GatewayConfig, common: ShedderOptions): Door[] {
  const { maxRequestsInFlight: max, maxLoopUtilisation, mode } = shedding
  const terms = { ...common, ...(mode && { mode }) }
  return [
    ...(maxLoopUtilisation === undefined ? [] : [processShedder({ ...terms, maxLoopUtilisation })]),
    ...(max === undefined ? [] : [requestsInFlight({ ...terms, max })]),
  ]
}

/** Sheds by the state of the requested queue. */
export function queueDoors(
  { shedding }: GatewayConfig,
  common: ShedderOptions,
  queueOf: (name: string) => WatchedQueue,
  onError: (error: Error) => void,
): Door {
  const doors = new Map(
    Object.entries(shedding.queues ?? {}).map(([name, terms]) => {
      const given = Object.fromEntries(Object.entries(terms).filter(([, value]) => value !== undefined))
      return [name, fleetShedder({ ...common, ...given, queue: queueOf(name), onError })]
    }),
  )
  return { enter: (request) => doors.get(queueNameOf(request) ?? '')?.enter(request) ?? {} }
}

function queueNameOf({ url }: HttpRequest): string | undefined {
  const segment = /^[^?]*?\/queues\/([^/?]+)/.exec(url)?.[1]
  try {
    return segment && decodeURIComponent(segment)
  } catch {
    return undefined
  }
}
