// lib/queue.mjs of a Next.js application: one queue for the process, which hot reloading does not open anew.
import { ShapedQueue } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'

globalThis.mails ??= new ShapedQueue('mails', { connection, prefix, shape: { rate: '10/s', capacity: 2 } })
export const mails = globalThis.mails
