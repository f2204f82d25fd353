import type { Shape } from 'sluice'

/** Four mails can wait; twenty leave per second. */
export const shape: Shape = { rate: '20/s', capacity: 4, concurrency: 5 }
