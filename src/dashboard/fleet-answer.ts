import type { FleetPage } from './fleet-reader.ts'

/** What is told with every look at the fleet. */
export interface FleetFacts {
  readonly title: string
  readonly allowActions: boolean
  readonly showData: boolean
}

/** The answer about the fleet, before it becomes JSON. */
export interface FleetAnswer extends FleetFacts, FleetPage {}

export function fleetAnswer({ at, ...page }: FleetPage, facts: FleetFacts): FleetAnswer {
  return { at, ...facts, ...page }
}
