import type { Algorithm, LimitWire } from '../../../src/limits/definition.ts'
import type { Model } from './base.ts'
import { BucketModel, GcraModel, LeakyModel, TokenModel } from './buckets.ts'
import { CounterModel } from './counter.ts'
import { EvenWindowModel } from './even-window.ts'
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
    'fixed-window': windowModel(rule),
    'sliding-window-counter': CounterModel,
    'sliding-window-log': LogModel,
    concurrency: LeaseModel,
  }
  const model = new models[rule.algorithm](rule)
  return model instanceof BucketModel ? new ScheduledModel(model) : model
}

function windowModel({ align, schedule }: LimitWire) {
  if (schedule) return EvenWindowModel
  return align === 'first' ? FirstWindowModel : AlignedWindowModel
}
