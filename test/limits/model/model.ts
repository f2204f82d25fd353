import type { Algorithm, LimitWire } from '../../../src/limits/definition.ts'
import type { Model } from './base.ts'
import { GcraModel, LeakyModel, TokenModel } from './buckets.ts'
import { CounterModel } from './counter.ts'
import { LeaseModel } from './leases.ts'
import { LogModel } from './log.ts'
import { ScheduledModel } from './scheduled.ts'
import { AlignedWindowModel, FirstWindowModel } from './windows.ts'

/** An algorithm by its definition, written apart from lua/. */
export function createModel(rule: LimitWire): Model {
  const models: Readonly<Record<Algorithm, new (rule: LimitWire) => Model>> = {
    gcra: GcraModel,
    'token-bucket': TokenModel,
    'leaky-bucket': LeakyModel,
    'fixed-window': rule.align === 'first' ? FirstWindowModel : AlignedWindowModel,
    'sliding-window-counter': CounterModel,
    'sliding-window-log': LogModel,
    concurrency: LeaseModel,
  }
  const model = new models[rule.algorithm](rule)
  return rule.schedule ? new ScheduledModel(rule, model) : model
}
