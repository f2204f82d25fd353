import type { ShapedJobsOptions } from '../../../src/admission/job-options.ts'
import { encodeRule } from '../../../src/limits/definition.ts'
import type { QueueLimit } from '../../../src/limits/queue-limits.ts'
import type { RateInput } from '../../../src/rate.ts'
import type { Model } from '../../limits/model/base.ts'
import { createModel } from '../../limits/model/model.ts'
import { START_US } from '../../model/held-queue.ts'
import { unitsOf } from './bounds.ts'

export interface Paced {
  readonly rate: RateInput
  readonly burst: number
}

/** When jobs leave by the definitions: the meter's and each limit's, each a model written apart from lua/. */
export class Expected {
  readonly #meter: Model | undefined
  readonly #limits: readonly { readonly limit: QueueLimit; readonly model: Model }[]
  /** The departure granted last, µs since the start: with a rate, none goes before it. */
  #last = 0

  constructor(paced: Paced | null, all: readonly QueueLimit[]) {
    this.#meter = paced ? createModel(encodeRule({ algorithm: 'gcra', ...paced })) : undefined
    this.#limits = all.map((limit) => ({ limit, model: createModel(encodeRule(ruleOf(limit))) }))
  }

  /** µs from now until all of them let that job through at once, not rounded. */
  offset(nowUs: number, options: ShapedJobsOptions): number {
    const offsets = [0]
    if (this.#meter) {
      this.#meter.now = nowUs
      offsets.push(this.#meter.earliest(options.cost ?? 1), this.#last - (nowUs - START_US))
    }
    for (const { limit, model } of this.#limits) {
      model.now = nowUs
      offsets.push(model.earliest(unitsOf(limit, options)))
    }
    return Math.max(...offsets)
  }

  charge(nowUs: number, offset: number, options: ShapedJobsOptions): void {
    this.#meter?.commit(options.cost ?? 1, offset, 0)
    for (const { limit, model } of this.#limits) model.commit(unitsOf(limit, options), offset, 0)
    this.#last = nowUs - START_US + offset
  }
}

function ruleOf({ name: _name, unit: _unit, shared: _shared, prefix: _prefix, ...rule }: QueueLimit) {
  return rule
}
