// Sluice in a NestJS application, through @nestjs/bullmq. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && cd examples/nestjs && node --import tsx main.ts
import 'reflect-metadata'
import { NestFactory } from '@nestjs/core'
import { QueueEvents } from 'bullmq'
import { MailModule } from './mail.module.ts'
import { MailService } from './mail.service.ts'
import { connection, prefix } from './settings.ts'

const events = new QueueEvents('mails', { connection, prefix })
await events.waitUntilReady()
const completed = new Promise<void>((resolve) => {
  let count = 0
  events.on('completed', () => ++count === 3 && resolve())
})

const app = await NestFactory.createApplicationContext(MailModule, { logger: ['error', 'warn'] })
const mails = app.get(MailService)
console.log(`digest of two: ${await mails.digest(['ann', 'bo'])}`)
await completed
console.log(`digest of five: ${await mails.digest(['ann', 'bo', 'cy', 'di', 'ed'])}`)

await mails.queue.obliterate({ force: true })
await events.close()
await app.close()
