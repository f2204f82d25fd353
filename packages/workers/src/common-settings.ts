import type { FeedbackOptions, Shape } from 'sluice'
import { encodeShape, parseRate } from 'sluice/internal'
import {
  oneOf,
  readBy,
  redisSettings,
  runSettings,
  type SettingsOf,
  type SettingTable,
  textLike,
  wholeNumber,
  yesOrNo,
} from 'sluice-programs'

export type CommonSettings = SettingsOf<ReturnType<typeof commonTable>>

/** The setting for how the destination reports overload. */
export function profileSetting<const N extends string>(names: readonly N[], fallback: NoInfer<N>) {
  return {
    variable: 'PROFILE',
    expected: `one of ${names.join(', ')}: how the destination reports overload`,
    schema: oneOf(names),
    fallback,
  } as const
}

/** The settings common to the worker programs; they differ only in the queue's default name. */
export function commonTable(defaultQueue: string) {
  return {
    ...redisSettings,
    queueName: {
      variable: 'QUEUE',
      expected: 'the name of a queue, without a colon',
      schema: textLike(/^[^:\p{Cc}]{1,128}$/u),
      fallback: defaultQueue,
    },
    ...shapeSettings,
    ...feedbackSettings,
    ...operationSettings,
  } as const satisfies SettingTable
}

const shapeSettings = {
  rate: {
    variable: 'RATE',
    expected: "the rate of all workers together, such as '50/s', '1000/min' or '100/15min'",
    schema: readBy((text) => {
      parseRate(text)
      return text
    }),
  },
  burst: {
    variable: 'BURST',
    expected: 'a whole number from 1: how many jobs may leave back to back after idling',
    schema: wholeNumber(1, 1_000_000),
    fallback: '1',
  },
  capacity: {
    variable: 'CAPACITY',
    expected: 'a whole number from 1: how many jobs may wait',
    schema: wholeNumber(1, 1_000_000_000),
    fallback: '10000',
  },
  groups: {
    variable: 'GROUP_DEFAULTS',
    expected: `JSON defaults for each group, such as {"rate":"5/s","concurrency":2}`,
    schema: readBy(readGroups),
    fallback: '',
  },
  concurrency: {
    variable: 'CONCURRENCY',
    expected: 'a whole number from 1 to 1000: jobs that run at once in this process',
    schema: wholeNumber(1, 1000),
    fallback: '10',
  },
} as const

function readGroups(text: string): Shape['groups'] | undefined {
  if (text === '') return undefined
  const groups = parsed(text) as NonNullable<Shape['groups']>
  encodeShape({ groups })
  return groups
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Error(`expected JSON such as {"rate":"5/s"}, got ${JSON.stringify(text.slice(0, 60))}`)
  }
}

function readScope(text: string): NonNullable<FeedbackOptions['feedbackScope']> {
  if (text === 'queue' || text === 'group') return text
  const [, kind, given = ''] = /^(by|pool):(.+)$/.exec(text) ?? []
  const names = given.split(',')
  const [name = ''] = names
  const isKnown = kind === 'by' || (kind === 'pool' && names.length === 1)
  if (!isKnown || names.includes(''))
    throw new Error(`expected queue, group, by:host or pool:keys, got ${JSON.stringify(text)}`)
  if (kind === 'pool') return { pool: name }
  return { by: names.length === 1 ? name : names }
}

const feedbackSettings = {
  feedbackScope: {
    variable: 'FEEDBACK_SCOPE',
    expected: 'queue, group, by:KEY, by:KEY,KEY or pool:LIMIT: what to pause when the destination is overloaded',
    schema: readBy(readScope),
    fallback: 'queue',
  },
  giveUpAfterMs: {
    variable: 'GIVE_UP_AFTER_MS',
    expected: 'milliseconds from 0: how long the destination may refuse a job or be unreachable before the job fails',
    schema: wholeNumber(0, 31_536_000_000),
    fallback: '259200000',
  },
  adapt: {
    variable: 'ADAPT',
    expected: 'true or false: whether the rate adapts to what the destination accepts',
    schema: yesOrNo,
    fallback: 'false',
  },
} as const

const operationSettings = {
  healthPort: {
    variable: 'HEALTH_PORT',
    expected: 'a port from 1 to 65535 for /live and /ready, or 0 for none',
    schema: wholeNumber(0, 65_535),
    fallback: '0',
  },
  healthHost: {
    variable: 'HEALTH_HOST',
    expected: 'the address that the health port listens on',
    schema: textLike(/^[\w.:-]+$/),
    fallback: '127.0.0.1',
  },
  stallTimeoutMs: {
    variable: 'STALL_TIMEOUT_MS',
    expected: 'milliseconds from 1000: /live answers 503 when jobs have waited this long and none ran',
    schema: wholeNumber(1000, 86_400_000),
    fallback: '60000',
  },
  ...runSettings,
  departureLog: {
    variable: 'DEPARTURE_LOG',
    expected: 'a file to which one line of JSON is appended for each departure',
    schema: textLike(/^[^\0]*$/),
    fallback: '',
  },
} as const
