import { expect, test } from 'vitest'
import { useProcesses } from '../../../test/support/processes.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { startSmtpSink } from '../../../workers/services/smtp.ts'
import { withQueue } from './queues.ts'
import { mail } from './refused-mails.ts'

const EMAIL = new URL('../../../workers/email.ts', import.meta.url)
const WAIT = { timeout: 60_000, interval: 20 }

const redis = useRedis(import.meta.url)
const processes = useProcesses()

test('with groups, a mail domain that defers everything holds its own mails alone', async () => {
  const sink = await startSmtpSink({
    respond: ({ to }) =>
      String(to).includes('busy.example') ? { code: 421, message: '4.7.0 too many mails' } : undefined,
  })
  try {
    await withQueue(redis, 'mails', async (queue) => {
      const program = processes.fork(EMAIL, {
        env: { REDIS_URL: redis.url, PREFIX: redis.prefix, QUEUE: 'mails', RATE: '1000/s', SMTP_URL: sink.url },
        assignments: "GROUP_DEFAULTS='{}' FEEDBACK_SCOPE=group",
      })
      await expect.poll(async () => (await queue.meter()).shape?.groups, WAIT).toEqual({})
      const send = (domain: string) => queue.add('mail', { ...mail, to: `ann@${domain}` }, { group: { id: domain } })
      const held = [await send('busy.example'), await send('busy.example')]
      await expect.poll(() => queue.getGroupStatus('busy.example'), WAIT).toBe('limited')
      const others = [await send('calm.example'), await send('quiet.example')]
      for (const job of others) await expect.poll(() => job.isCompleted(), WAIT).toBe(true)
      for (const job of held) expect(await job.isCompleted()).toBe(false)
      expect(sink.mails).toHaveLength(2)
      expect((await queue.meter()).pausedUntil).toBeUndefined()
      expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
    })
  } finally {
    await sink.stop()
  }
})
