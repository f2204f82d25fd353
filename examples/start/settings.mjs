// Settings that the programs of the tutorial share.
export const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
export const prefix = process.env.PREFIX ?? 'bull'
export const smtpPort = Number(process.env.SMTP_PORT ?? 2525)

// Two emails per second, and at most 60 waiting.
export const shape = { rate: '2/s', capacity: 60 }
