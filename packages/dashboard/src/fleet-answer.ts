import type { FleetPage } from './fleet-reader.ts'

/** Sent with every read of the fleet. */
export interface FleetFacts {
  readonly title: string
  readonly allowActions: boolean
  readonly showData: boolean
}

/** The fleet response, before it is serialized to JSON. */
export interface FleetAnswer extends FleetFacts, FleetPage {}

export function fleetAnswer({ at, ...page }: FleetPage, facts: FleetFacts): FleetAnswer {
  return { at, ...facts, ...page }
}
