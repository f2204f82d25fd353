// Compiled, never run, by old compilers and with old ways to find modules: every entry that needs no other package.
import { type Shape, ShapedQueue, ShapedWorker } from 'sluice'
import { answerOf, type Profile } from 'sluice/egress'
import { Inspector } from 'sluice/inspect'
import { createLimiter, type LimitAnswer } from 'sluice/limits'
import { expectPaced } from 'sluice/testing'
import { type EgressAnswer, egressFetch } from 'sluice-fetch'
import { createPoliteFetch, type FetchWait } from 'sluice-gateway/client'

export const shape: Shape = { rate: '50/s', capacity: 10 }
export const queue = new ShapedQueue<{ to: string }>('mails', { connection: {}, shape })
export const worker = new ShapedWorker('mails', async (job) => job.data.to, { connection: {}, shape })
export const values = { createPoliteFetch, answerOf, egressFetch, Inspector, createLimiter, expectPaced }
export type Types = [FetchWait, Profile, EgressAnswer, LimitAnswer]
// @ts-expect-error a capacity is a number: the declarations were found
export const wrong: Shape = { capacity: 'ten' }
