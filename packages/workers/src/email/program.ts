import { profiles } from 'sluice/egress'
import { hostOf, type SettingsOf, type SettingTable, StartError, urlWith, wholeNumber, yesOrNo } from 'sluice-programs'
import { commonTable, profileSetting } from '../common-settings.ts'
import type { WorkerProgram } from '../worker-program.ts'
import { createEmailProcessor } from './processor.ts'
import { createMailTransport } from './transport.ts'

const emailTable = {
  ...commonTable('emails'),
  profile: profileSetting(['smtp', 'ses', 'gmail'], 'smtp'),
  smtpUrl: {
    variable: 'SMTP_URL',
    expected: 'an smtp:// or smtps:// URL',
    schema: urlWith(['smtp:', 'smtps:']),
    secret: true,
  },
  smtpTimeoutMs: {
    variable: 'SMTP_TIMEOUT_MS',
    expected: 'milliseconds from 100: how long the server may be silent',
    schema: wholeNumber(100, 600_000),
    fallback: '30000',
  },
  allowMultipleRecipients: {
    variable: 'ALLOW_MULTIPLE_RECIPIENTS',
    expected: 'true or false: whether to and cc may contain several addresses',
    schema: yesOrNo,
    fallback: 'false',
  },
} as const satisfies SettingTable

export const emailProgram: WorkerProgram<SettingsOf<typeof emailTable>> = {
  name: 'email',
  purpose: 'Sends each job of a queue as one email over SMTP, at the rate of the queue.',
  jobFormat: '{ from, to, subject, text and/or html, cc? }: strings, and no other field',
  settings: emailTable,
  async open(settings, log) {
    const transport = createMailTransport({ url: settings.smtpUrl, timeoutMs: settings.smtpTimeoutMs })
    try {
      await transport.verify()
    } catch (error) {
      transport.close()
      throw new StartError(`cannot use the SMTP server at ${hostOf(settings.smtpUrl)}`, error)
    }
    return {
      process: createEmailProcessor(transport, {
        ...settings,
        onRefused: ({ id }, { accepted, rejected, pending }) => {
          const counts = { accepted: accepted.length, rejected: rejected.length, pending: pending.length }
          log.warn({ jobId: id, ...counts, replies: rejected.map(({ reply }) => reply) }, 'recipients refused')
        },
      }),
      feedback: profiles[settings.profile],
      close: async () => transport.close(),
    }
  },
}
