import { InvalidInputError, SluiceError } from 'sluice/internal'

/**
 * Thrown for arrivals that cannot be read, and for an invalid load; names the position, the expected and the given
 * value.
 */
export class InvalidArrivalsError extends InvalidInputError {}

/** Thrown when a simulation was aborted, or takes longer than Redis keeps its state. */
export class SimulationStoppedError extends SluiceError {}
