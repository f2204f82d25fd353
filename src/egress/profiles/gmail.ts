import { gmailDialect } from '../dialects/gmail.ts'
import { createProfile, over } from './profile.ts'

/**
 * Mail to Gmail and Google Workspace. Google publishes how much one mailbox accepts (60 messages per minute), not how
 * much a sender may send: the shape is what KumoMTA starts with for it, five connections.
 */
export const gmail = createProfile({
  name: 'gmail',
  dialect: over('smtp', gmailDialect),
  rules: [],
  shape: { rate: '100/s', concurrency: 5 },
  read: { on: '2026-11-22', at: 'https://github.com/KumoCorp/kumomta/blob/main/assets/policy-extras/shaping.toml' },
})
