// Sluice in a NestJS application, through @nestjs/bullmq. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && cd examples/nestjs && node --import tsx main.ts
import 'reflect-metadata'
import { NestFactory } from '@nestjs/core'
import { MailModule } from './mail.module.ts'
import { MailService } from './mail.service.ts'
import { checkRedis } from './redis.ts'

try {
  await checkRedis()
} catch (error) {
  console.error((error as Error).message)
  process.exit(1)
}

const app = await NestFactory.createApplicationContext(MailModule, { logger: ['error', 'warn'] })
const mails = app.get(MailService)

console.log(`digest of two: ${await mails.digest(['ann', 'bo'])}`)
console.log(`digest of five: ${await mails.digest(['ann', 'bo', 'cy', 'di', 'ed'])}`)

await mails.removeEverything()
await app.close()
