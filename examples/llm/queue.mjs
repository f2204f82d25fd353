// The queue of the calls, and its limits. Everything that calls a model imports `ask`.
import { ShapedQueue } from 'sluice'

export const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
export const prefix = process.env.PREFIX ?? 'sluice-examples'

// What the provider allows the account. `shared`: one state for every queue and limiter of that name.
export const account = { name: 'account', algorithm: 'sliding-window-log', rate: '2400/min' }
// A customer's tokens, by plan. A job without a plan gets `free`; an unknown plan is refused.
const free = { rate: '24000/min', burst: 400 }
const plans = { pro: { rate: '240000/min', burst: 2000 } }
export const shape = {
  capacity: 1000,
  groups: { capacity: 100 },
  limits: [
    { ...account, shared: true, prefix },
    { name: 'requests', by: 'model', rate: '1800/min', burst: 5 },
    { name: 'tokens', by: 'model', unit: 'tokens', algorithm: 'token-bucket', rate: '120000/min', burst: 1500 },
    { name: 'calls', by: 'group', rate: '600/min', burst: 20 },
    { name: 'plan', by: 'group', unit: 'tokens', ...free, tiers: plans },
  ],
}

export const queue = new ShapedQueue('calls', { connection, prefix, shape })

/** A token is about four characters. The job is charged the most that it may use. */
export function ask({ customer, plan, model, prompt, maxTokens }) {
  const costs = { tokens: Math.ceil(prompt.length / 4) + maxTokens }
  const opts = { group: { id: customer }, keys: { model }, tier: plan, costs, attempts: 3 }
  return queue.add('call', { model, prompt, maxTokens }, opts)
}
