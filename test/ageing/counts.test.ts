import fc from 'fast-check'
import { expect, test } from 'vitest'
import { LuaComposer } from '../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../src/redis/lua-files.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()

/** KEYS[1]: …:; ARGV: now, priorityAgeingMs, the questions. Returns each answer alone and among all of them. */
const SCRIPT = new LuaComposer(readLuaFile).text(`
local ageing_open = use 'gate/ageing-open'
local now, shape = tonumber(ARGV[1]), { ageing_ms = tonumber(ARGV[2]), mode = 'enforce' }
local ageing = ageing_open(KEYS[1], shape, now)
local behind, replies = ageing.behind_all(ageing.queue), {}
for i, question in ipairs(cjson.decode(ARGV[3])) do
  local at, priority = unpack(question)
  replies[i] = { ageing.behind(ageing.queue, at, priority), behind(at, priority) }
end
return replies`)

const BAND = 2 ** 32
const START_US = 1_764_000_000_000_017
const base = `${redis.prefix}:q:`

interface Waiting {
  readonly priority: number
  readonly at: number
}

const levels = fc.constantFrom([0], [0, 1, 2], [1, 2, 3, 4, 5], [0, 7, 1000])
/** Jobs, each so many ms after the one before; and how long after the last one others come. */
const story = fc.record({
  priorities: levels.chain((some) => fc.array(fc.constantFrom(...some), { minLength: 1, maxLength: 60 })),
  gapsMs: fc.array(fc.constantFrom(0, 0, 1, 500, 1000), { minLength: 60, maxLength: 60 }),
  questions: fc.array(fc.tuple(fc.constantFrom(0, 0, 500, 60_000, 3_600_000), fc.constantFrom(0, 1, 2, 7, 50)), {
    minLength: 1,
    maxLength: 30,
  }),
  ageingMs: fc.constantFrom(1, 500, 1000, 60_000),
})

async function fill(jobs: readonly Waiting[]): Promise<void> {
  const commands = client.multi()
  for (const [i, { priority, at }] of jobs.entries()) {
    commands.hset(`${base}j${i}`, 'queuedAt', at)
    if (priority === 0) commands.lpush(`${base}wait`, `j${i}`)
    else commands.zadd(`${base}prioritized`, priority * BAND + i, `j${i}`)
  }
  await commands.exec()
}

/** Those that came before go first, unless they are less important by as much; of equal ones those of the wait list. */
function reference(jobs: readonly Waiting[], ageingMs: number, [at, priority]: readonly [number, number]): number {
  const keyOf = (job: Waiting) => job.at + job.priority * ageingMs * 1000
  const key = keyOf({ at, priority })
  return jobs.filter((job) => {
    if (job.priority === priority) return true
    return keyOf(job) < key || (keyOf(job) === key && job.priority < priority)
  }).length
}

test('of many new jobs, each comes behind as many as it would alone', async () => {
  await fc.assert(
    fc.asyncProperty(story, async ({ priorities, gapsMs, questions, ageingMs }) => {
      await redis.cleanup()
      let nowUs = START_US
      const jobs = priorities.map((priority, i) => {
        nowUs += (gapsMs[i] as number) * 1000
        return { priority, at: nowUs }
      })
      await fill(jobs)
      const asked = questions.map(([afterMs, priority]) => [nowUs + afterMs * 1000, priority] as const)
      const replies = await client.eval(SCRIPT, 1, base, nowUs, ageingMs, JSON.stringify(asked))
      expect(replies).toEqual(asked.map((question) => Array(2).fill(reference(jobs, ageingMs, question))))
    }),
    { numRuns: 40 },
  )
})
