import type { Shape } from 'sluice'

export const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
export const prefix = process.env.PREFIX ?? 'sluice-examples'

/** Four emails can wait; twenty leave per second. */
export const shape: Shape = { rate: '20/s', capacity: 4, concurrency: 5 }
