// The queue of welcome emails, for all servers that take sign-ups. A Next.js application keeps it in lib/queue.mjs.
import { ShapedQueue } from 'sluice'

export const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
export const prefix = process.env.PREFIX ?? 'sluice-examples'

// No one waits longer than two seconds for the email: a sign-up that would have to is refused at once.
export const shape = { rate: '5/s', capacity: 1000, maxWaitMs: 2000 }

// One queue per process: hot reloading in Next.js does not open another.
globalThis.welcomes ??= new ShapedQueue('welcomes', { connection, prefix, shape })
export const queue = globalThis.welcomes
