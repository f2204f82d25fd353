import { expect, test, vi } from 'vitest'
import type { HeldJob } from '../../src/departure/held-job.ts'
import { profiles } from '../../src/egress/index.ts'
import type { Scope } from '../../src/feedback/feedback.ts'
import { checkFeedbackOptions } from '../../src/feedback/options.ts'
import { encodeFeedbackRequest, type FeedbackChange, readFeedbackReply } from '../../src/feedback/request.ts'
import type { Found } from '../../src/feedback/source.ts'
import { encodeShape, type Shape } from '../../src/shape/shape.ts'
import { BucketServer } from '../feedback/support/limited-server.ts'
import { heldText } from '../model/replay.ts'
import { someOf } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'

// The rate of one group, or of one key, follows what its destination accepts, in virtual time: the scripts of lua/, and what a profile makes
// of the answers, are the real ones.
const redis = useRedis(import.meta.url)
const client = redis.client()

const START_US = 1_764_000_000_000_000
const TICK_US = 50_000
const ROUND_TRIP_US = 20_000
const { ADAPT_GROUPS } = process.env
const SHAPE: Shape = { groups: { rate: '20/s' } }
const HOSTS: Shape = { limits: [{ name: 'perHost', by: 'host', rate: '20/s' }] }

/** What was sent in one second, by group. */
interface Second {
  readonly sent: Map<string, number>
  refused: number
}

class Destinations {
  readonly #sha = client.script('LOAD', heldText(new URL('steps.lua', import.meta.url))) as Promise<string>
  readonly #key: string
  readonly #found: (text: string) => readonly Found[]
  readonly #adapt = checkFeedbackOptions({ adapt: true }).adapt
  /** That of the first group; undefined: it takes all. */
  server: BucketServer | undefined
  readonly seconds: Second[] = []
  readonly changes: FeedbackChange[] = []
  readonly #oks = new Map<string, { count: number; lastUs: number; endedUs: number }>()
  #held: HeldJob[] = []
  #answers: { readonly atUs: number; readonly job: HeldJob; readonly refused: boolean }[] = []
  #later: { readonly atUs: number; readonly id: string }[] = []
  #ended: string[] = []
  #nowUs = START_US

  /** @param count of groups or hosts */
  constructor(
    name: string,
    readonly scope: Scope,
    readonly count: number,
  ) {
    this.#key = `${redis.prefix}:${name}:meta:shape`
    this.#found = (text) => {
      const error = Object.assign(new Error(text), { responseCode: 421, command: 'MAIL FROM' })
      const heard = profiles.smtp.listen({ threw: error }, { receivedAtMs: this.#nowUs / 1000, latencyMs: 20 })
      return heard.map((found) => ({ ...found, feedback: { ...found.feedback, scope: this.scope } }))
    }
  }

  async step(...args: readonly (string | number)[]): Promise<unknown> {
    return client.evalsha(await this.#sha, 1, this.#key, this.#nowUs, ...args)
  }

  async run(seconds: number): Promise<void> {
    const endUs = this.#nowUs + seconds * 1_000_000
    for (; this.#nowUs < endUs; this.#nowUs += TICK_US) await this.#tick()
  }

  async #tick(): Promise<void> {
    const tickEndUs = this.#nowUs + TICK_US
    const granted = await this.step('depart', 100, TICK_US, this.count, ...this.#ended.splice(0))
    for (const [id, slotUs, score] of granted as [string, string, string][]) {
      this.#held.push({ id, slotUs: Number(slotUs), score, token: 'token' } as HeldJob)
    }
    const due = this.#held
      .filter(({ slotUs }) => slotUs < tickEndUs)
      .toSorted((one, other) => one.slotUs - other.slotUs)
    this.#held = this.#held.filter(({ slotUs }) => slotUs >= tickEndUs)
    for (const job of due) this.#call(job)
    const came = this.#answers.filter(({ atUs }) => atUs < tickEndUs)
    this.#answers = this.#answers.filter(({ atUs }) => atUs >= tickEndUs)
    for (const { job, refused } of came) {
      if (refused) await this.#refused(job)
      else this.#wentWell(job)
    }
    const promoted = this.#later.filter(({ atUs }) => atUs < tickEndUs)
    this.#later = this.#later.filter(({ atUs }) => atUs >= tickEndUs)
    for (const { id } of promoted) await this.step('promote', id)
  }

  #call(job: HeldJob): void {
    const at = Math.floor((job.slotUs - START_US) / 1_000_000)
    while (this.seconds.length <= at) this.seconds.push({ sent: new Map(), refused: 0 })
    const { sent } = this.seconds[at] as Second
    const group = groupOf(job)
    sent.set(group, (sent.get(group) ?? 0) + 1)
    const refused = group === 'g1' && this.server?.answer(job.slotUs / 1000) !== undefined
    if (refused) (this.seconds[at] as Second).refused += 1
    this.#answers.push({ atUs: job.slotUs + ROUND_TRIP_US, job, refused })
  }

  #wentWell(job: HeldJob): void {
    const { count } = this.#oks.get(groupOf(job)) ?? { count: 0 }
    this.#oks.set(groupOf(job), { count: count + 1, lastUs: job.slotUs, endedUs: this.#nowUs })
    this.#ended.push(job.id)
  }

  async #refused(job: HeldJob): Promise<void> {
    const oks = this.#oks.get(groupOf(job))
    this.#oks.delete(groupOf(job))
    const agoMs = oks && (this.#nowUs - oks.endedUs) / 1000
    const request = encodeFeedbackRequest({
      found: this.#found('421 4.7.0 too busy'),
      sentUs: job.slotUs,
      by: 'w',
      adapt: this.#adapt,
      oks: 0,
      ...(this.scope === 'group' ? { group: groupOf(job) } : { keys: { host: groupOf(job) } }),
      calls: { count: oks?.count ?? 0, lastUs: oks?.lastUs, agoMs },
      job: { held: job, head: true, giveUpAfterMs: 1e9, retried: false },
    })
    const [, , ...raw] = (await this.step('apply', request)) as unknown[]
    const reply = readFeedbackReply(raw)
    this.changes.push(...reply.changes)
    if (reply.back) return
    await this.step('delay', job.id)
    this.#later.push({ atUs: this.#nowUs + reply.afterMs * 1000, id: job.id })
  }

  /** Of some seconds: what was sent a second, and the part of it that was refused. */
  rates(from: number, to: number, group = 'g1') {
    const seconds = this.seconds.slice(from, to)
    const sent = seconds.reduce((sum, second) => sum + (second.sent.get(group) ?? 0), 0)
    const refused = group === 'g1' ? seconds.reduce((sum, second) => sum + second.refused, 0) : 0
    return { sent: sent / seconds.length, accepted: (sent - refused) / seconds.length, refused: refused / sent }
  }
}

const groupOf = ({ id }: HeldJob) => id.split('-')[0] as string

const SCOPES: readonly [string, Shape, Scope, number][] = [
  ['group', SHAPE, 'group', 2],
  ['host', HOSTS, { limit: 'perHost' }, 2],
]

test.each(someOf(SCOPES))(
  'the %s whose destination answers 421 settles at what it accepts, the others keep their rate, and it climbs back',
  { timeout: 300_000 },
  async (name, shape, scope, few) => {
    const count = Number(ADAPT_GROUPS ?? few)
    // No spread of pauses: each run is the same.
    const random = vi.spyOn(Math, 'random').mockReturnValue(0.5)
    const all = new Destinations(name, scope, count)
    await all.step('declare', JSON.stringify(encodeShape(shape).fields))
    all.server = new BucketServer(5, 2, 'nothing')
    await all.run(240)
    const [searching, settled] = [all.rates(0, 60), all.rates(60, 240)]
    if (process.env.ADAPT) console.log(searching, settled)
    expect(settled.accepted).toBeGreaterThanOrEqual(4.5)
    expect(settled.accepted).toBeLessThanOrEqual(5.05)
    expect(settled.refused).toBeLessThan(0.02)
    for (let i = 2; i <= count; i++) expect(all.rates(0, 240, `g${i}`).sent).toBeCloseTo(20, 0)
    all.server = undefined
    await all.run(130)
    const back = all.seconds.findIndex((second, i) => i >= 240 && (second.sent.get('g1') ?? 0) >= 20)
    if (process.env.ADAPT) console.log('back after', back - 240, 's')
    expect(back - 240).toBeGreaterThan(0)
    expect(all.rates(350, 370).sent).toBeGreaterThan(19.5)
    random.mockRestore()
    // Nothing is left of it.
    const left = await client.keys(`${redis.prefix}:${name}:meta:*`)
    expect(left.filter((key) => /climbs|used|settings|own:|ends/.test(key))).toEqual([])
  },
)
