import { describe, expect, test } from 'vitest'
import type { HttpAnswer } from '../../../../src/egress/answer.ts'
import type { Feedback } from '../../../../src/feedback/feedback.ts'
import { httpAnswer } from '../../signals/http-answer.ts'
import { HTTP_PROFILES } from './http-profiles.ts'

type Given = Partial<HttpAnswer> & { readonly status: number }

export type Row = readonly [
  title: string,
  profile: keyof typeof HTTP_PROFILES,
  answer: Given,
  feedback: readonly Partial<Feedback>[],
]

export const REFUSED = { kind: 'pause', scope: 'queue', hard: true } as const
export const SLOW = { kind: 'slow', scope: 'queue', factor: 0.7 } as const
export const FATAL = { kind: 'fatal', scope: 'queue' } as const
export const RETRY = { kind: 'retryJob', scope: 'queue' } as const

/** One test per row: the answer of a vendor, and what it says. */
export function describeVendors(vendors: string, rows: readonly Row[]): void {
  describe(`how ${vendors} are read (standards 1.6)`, () => {
    test.each(rows)('%s', (_, profile, answer, feedback) => {
      const said = HTTP_PROFILES[profile].dialect(httpAnswer(answer))
      expect(said).toMatchObject(feedback)
      expect(said).toHaveLength(feedback.length)
    })
  })
}
