export type {
  Concurrency,
  Fatal,
  Feedback,
  Ok,
  Pause,
  RetryJob,
  SaidRate,
  Scope,
  Slow,
  Source,
} from '../feedback/feedback.ts'
export type { Answer, HttpAnswer, OtherAnswer, SmtpAnswer, SqlAnswer } from './answer.ts'
export { answerOf } from './answers/answer-of.ts'
export type { Dialect, QuotaLimits } from './dialects/dialect.ts'
export { profiles } from './profiles/index.ts'
export {
  createProfile,
  extendProfile,
  type Profile,
  type ProfileOptions,
  type StartingShape,
} from './profiles/profile.ts'
export { InvalidRuleError } from './rule-error.ts'
export type { Match, OneOf, Pattern } from './rule-match.ts'
export type { Action, Duration, Rule } from './rule-options.ts'
export { type ConditionTest, type RuleTest, testRules } from './rules.ts'
export { warmUpPlans } from './warm-up-plans.ts'
