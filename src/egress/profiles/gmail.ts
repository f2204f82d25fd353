import { pauseMs, pauseUnknown, retryJob, slowDown } from '../dialects/build-feedback.ts'
import { fewerConnections, is, smtpDialectWith } from '../dialects/smtp.ts'
import { createProfile, over } from './profile.ts'

const FLOODED_MAILBOX_MS = 600_000
const LOGINS_MS = 600_000

/**
 * Gmail and Google Workspace, as the receiver and as the relay. Source: "Gmail SMTP errors and codes", Google Workspace
 * admin help.
 */
export const gmailDialect = smtpDialectWith([
  // "The user you are trying to contact is receiving mail at a rate that prevents additional messages".
  {
    name: 'mailbox',
    matches: ({ status = 0, enhanced }) => status < 500 && enhanced === '4.2.1',
    asks: (why) => [retryJob(why, { ms: FLOODED_MAILBOX_MS, name: 'busy mailbox', source: 'smtp' })],
  },
  // "An unusual rate of unsolicited mail" from the sending address, domain or network.
  {
    name: 'rate',
    matches: ({ enhanced }) => enhanced === '4.7.28',
    asks: (why) => [pauseUnknown(why, true), slowDown(why)],
  },
  // Each new connection logs in.
  {
    name: 'logins',
    matches: (answer) => is(answer, 421, 454) && /too many login attempts/i.test(answer.text),
    asks: (why) => [pauseMs(LOGINS_MS, why), fewerConnections(why)],
  },
])

/**
 * Mail to Gmail and Google Workspace. Google publishes how much one mailbox accepts (60 messages per minute), but no
 * limit for a sender. The shape is KumoMTA's start for it, five connections.
 */
export const gmail = createProfile({
  name: 'gmail',
  dialect: over('smtp', gmailDialect),
  rules: [],
  shape: { rate: '100/s', concurrency: 5 },
  read: { on: '2026-11-22', at: 'https://github.com/KumoCorp/kumomta/blob/main/assets/policy-extras/shaping.toml' },
})
