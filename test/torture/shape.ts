/** What the queue under torture is declared as; its rate is overridden as faults go on. */
export const SHAPE = { rate: '60/s', burst: 5, capacity: 300, horizonMs: 50 } as const
