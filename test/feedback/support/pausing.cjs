/** A processor in a process of its own: what it throws arrives without its class. */
let calls = 0
module.exports = async () => {
  if (calls++ > 0) return 'sent'
  throw Object.assign(new Error('closed for lunch'), { name: 'PauseQueueError', retryAfterMs: 100, hard: false })
}
