import { createTransport } from 'nodemailer'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type MailReceiver, startMailReceiver } from '../../workers/demo/mail-receiver.ts'

let receiver: MailReceiver
let transport: ReturnType<typeof createTransport>
beforeAll(async () => {
  receiver = await startMailReceiver(100)
  transport = createTransport({ url: receiver.url, pool: true, maxConnections: 1 })
})
afterAll(async () => {
  transport.close()
  await receiver.stop()
})

const send = (effectId: string): Promise<unknown> =>
  transport.sendMail({
    ...{ from: 'a@example.com', to: 'b@example.com', subject: 's', text: 't' },
    messageId: `<${effectId}@example.com>`,
  })

test('sends the 5th and the 45th new mail away once, and none of the second half', async () => {
  const sentAway: number[] = []
  for (let mail = 1; mail <= 90; mail++) {
    await send(`effect-${mail}`).catch((error: { responseCode: number }) => {
      expect(error.responseCode).toBe(451)
      sentAway.push(mail)
    })
  }
  expect(sentAway).toEqual([5, 45])
  expect(receiver.sentAway()).toBe(2)
  await send('effect-5')
  const attempts = receiver.arrivals.filter(({ effectId }) => effectId === 'effect-5')
  expect(attempts.map(({ taken }) => taken)).toEqual([false, true])
  expect(attempts[1]!.atUs).toBeGreaterThan(attempts[0]!.atUs)
  expect(receiver.arrivals).toHaveLength(91)
})
