import { InvalidInputError, SluiceError } from '../errors.ts'

/** Thrown for arrivals that can not be read, and for a load that means nothing; says where, what was expected and what came. */
export class InvalidArrivalsError extends InvalidInputError {}

/** Thrown where a simulation was broken off, or takes longer than Redis keeps its state. */
export class SimulationStoppedError extends SluiceError {}
