// Without limits by a key, and with lanes that are groups, the model decides as that of groups does.

import { expect, test } from 'vitest'
import { createRandom, type Random } from '../../../workers/demo/outbox/random.ts'
import type { Limit as GroupLimit } from '../../groups/model/charges.ts'
import { ReferenceGroups, type Settings } from '../../groups/model/reference.ts'
import { caseCount } from '../../support/cases.ts'
import { ReferenceKeys } from './reference.ts'
import { ALL_FEATURES, type Limit } from './shape.ts'

const LANES = { ...ALL_FEATURES, lines: false, keep: false, places: false }
const OPERATIONS = 250

class Pair {
  readonly #random: Random
  readonly #names: readonly string[]
  readonly #groups: ReferenceGroups
  readonly #keys: ReferenceKeys
  readonly #running: string[] = []
  readonly #hasAgeing: boolean
  readonly #hasLimits: boolean
  #jobs = 0
  #nowUs = 1_000_000_000

  /** @param hasLimits whether limits count by group; else groups may have a rate */
  constructor(seed: number, hasLimits: boolean) {
    this.#random = createRandom(seed * 0x9e3779b9)
    // A lane that a limit holds is not paused with its group, but at its turn.
    this.#hasLimits = hasLimits
    const { between, oneIn, pick } = this.#random
    const names = Array.from({ length: between(1, 8) }, (_, i) => `${'zyxwvuts'[i]}${i}`)
    // Under limits by group, jobs without one are held by another rule than those of groups.
    this.#names = !hasLimits && oneIn(2) ? ['', ...names] : names
    const groups: Settings = {
      ...(hasLimits || oneIn(2) ? {} : { rate: [between(1, 30), 1000] as const, burst: between(1, 5) }),
      ...(oneIn(2) ? { concurrency: between(1, 3) } : {}),
      ...(oneIn(3) ? { weight: between(1, 4) } : {}),
    }
    const limits = hasLimits ? Array.from({ length: between(1, 2) }, () => this.#newLimit()) : []
    this.#hasAgeing = oneIn(3)
    const ageingMs = this.#hasAgeing ? pick([1, 30, 500]) : undefined
    this.#groups = new ReferenceGroups(groups, limits, ageingMs)
    const keyed = limits.map(({ algorithm, limit, periodMs, burst, isOfTokens }, i): Limit => {
      const rule = { name: `limit${i}`, by: 'group', algorithm, rate: { limit, period: periodMs } }
      return { ...rule, ...(algorithm === 'gcra' ? { burst } : {}), ...(isOfTokens ? { unit: 'tokens' } : {}) }
    })
    this.#keys = new ReferenceKeys({ groups, limits: keyed, ...(ageingMs ? { ageingMs } : {}) }, LANES)
  }

  #newLimit(): GroupLimit {
    const { between, oneIn, pick } = this.#random
    return {
      algorithm: pick(['gcra', 'fixed-window', 'sliding-window-log']),
      ...{ limit: between(4, 40), periodMs: pick([500, 1000, 3000]), burst: pick([3, 8]), isOfTokens: oneIn(2) },
    }
  }

  /** @returns what each of both decided */
  step(): readonly [string, string] {
    const { between, oneIn } = this.#random
    this.#nowUs += oneIn(3) ? 0 : between(0, oneIn(3) ? 100_000 : 10_000)
    const chance = between(1, 100)
    if (chance <= 36) return this.#add()
    if (chance <= 84) return this.#depart()
    if (chance <= 94 || this.#hasLimits) return this.#end()
    return this.#set()
  }

  #add(): readonly [string, string] {
    const { pick } = this.#random
    this.#jobs += 1
    const [group, id] = [pick(this.#names), `j${this.#jobs}`]
    const [cost, priority, tokens] = [pick([1, 1, 1, 2, 3, 0.5]), pick([0, 0, 0, 1, 7]), pick([1, 2, 3])]
    this.#groups.add(group, { id, priority, cost, sinceUs: this.#nowUs, deadlineUs: undefined }, tokens)
    this.#keys.add({ id, group, keys: {}, cost, costs: { tokens }, priority }, this.#nowUs)
    return ['', '']
  }

  #depart(): readonly [string, string] {
    const horizonUs = this.#random.pick([0, 50_000, 200_000])
    const one = this.#groups.depart(this.#nowUs, 0, horizonUs)
    const { departures, untilUs = Number.POSITIVE_INFINITY } = this.#keys.take(this.#nowUs, { horizonUs })
    const departed = departures.map(({ id, slotUs }) => `${id} ${slotUs}`).join()
    const [departure] = departures
    if (departure) this.#running.push(departure.id)
    if ('slotUs' in one) return [`${one.id} ${one.slotUs}`, departed]
    const until = 'untilUs' in one ? (one.untilUs ?? Number.POSITIVE_INFINITY) : undefined
    return [`none ${until}`, departed || `none ${untilUs}`]
  }

  #end(): readonly [string, string] {
    const { oneIn, pick } = this.#random
    if (this.#running.length === 0) return this.#add()
    const id = pick(oneIn(2) ? this.#running : this.#running.slice(-1))
    this.#running.splice(this.#running.indexOf(id), 1)
    // Where jobs age, one that goes back may be the next without being the first of its priority.
    const verb = this.#hasAgeing || !this.#groups.isGrouped(id) ? 'finish' : pick(['finish', 'finish', 'back', 'late'])
    if (verb === 'finish') {
      this.#groups.finish(id)
      this.#keys.finish(id, this.#nowUs)
    } else if (verb === 'back') {
      this.#groups.back(id, this.#nowUs)
      this.#keys.back(id, this.#nowUs)
    } else {
      this.#groups.late(id, this.#nowUs)
      this.#keys.returnUnstarted(id, this.#nowUs)
    }
    return ['', '']
  }

  #set(): readonly [string, string] {
    const { between, oneIn, pick } = this.#random
    const name = pick(this.#names.filter((group) => group !== ''))
    if (oneIn(2)) {
      this.#groups.set(name, {}, this.#nowUs)
      this.#keys.resumeGroup(name, this.#nowUs)
    } else {
      const untilUs = this.#nowUs + pick([Number.POSITIVE_INFINITY, between(1, 300_000)])
      this.#groups.set(name, { paused: true }, this.#nowUs, untilUs)
      this.#keys.pauseGroup(name, this.#nowUs, untilUs)
    }
    return ['', '']
  }
}

test.each([
  ['groups with rates, places and weights', false],
  ['groups with limits by group', true],
])('%s leave as without lanes', (_, hasLimits) => {
  for (let seed = 1; seed <= caseCount(40, 'KEYS_STORIES'); seed++) {
    const pair = new Pair(seed, hasLimits)
    for (let i = 0; i < OPERATIONS; i++) {
      const [groups, keys] = pair.step()
      expect(keys, `seed ${seed}, operation ${i}`).toBe(groups)
    }
  }
})
