--[[
  As lua/verbs/finish-batch-open.lua, for queues whose jobs only groups may hold: starts as many jobs as ended if those that are
  next may go now. If something else might hold them, nothing is done and all are left to lua/verbs/finish-batch.lua; so are
  single ends that BullMQ's script refuses because the lock is missing or this call was sent before.
  KEYS
    [1]  wait  [2] active  [3] prioritized  [4] events  [5] stalled  [6] limiter  [7] delayed  [8] paused  [9] meta
    [10] pc  [11] marker  [12] …:meta:shape
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  how long the end of a job that is not kept, or a grant, is remembered, ms
    [3]  id of this call: the worker's id, a colon and a number. lua/verbs/finish-batch.lua gets the same if all ends are left
    [4]  key prefix
    then six for each job that ended, as in lua/verbs/finish-batch.lua
  Returns the first nine entries of the reply of gate/departure, with a list as result: for each job BullMQ's code, the
  text of an error, BullMQ's tuple with the next job, locked with the token of the job that ended, and its score, or nil
  if the end is left; only the first three if the worker is to ask for jobs. Nil if all are left.
]]
local batch_open = use 'ends/batch-open'
local ends = use 'ends/ends'
local job_began = use 'ends/job-began'
local quick_answer = use 'ends/quick-answer'
local quick_groups = use 'gate/quick-groups'
local touched = use 'gate/touched'
local wake = use 'gate/wake'
local as_text = use 'redis/as-text'
local delay_clock = use 'redis/delay-clock'

local FIRST = 5
local base = string.sub(KEYS[12], 1, -11)
ends.begin(KEYS, ARGV[4])
local call = {
  key = KEYS[12], base = base, identity = ARGV[1], memo_ms = ARGV[2], grant = ARGV[3], wanted = ends.wanted(ARGV, FIRST),
  ids = {},
}
for at = FIRST, #ARGV, ends.FIELDS do call.ids[#call.ids + 1] = ARGV[at] end
local q = quick_groups.open(call)
if not q then return false end
delay_clock.known[base .. 'delayed'], delay_clock.known.now = true, q.now
-- When the first of them started, if that is to be recorded.
local began, ended = job_began(base, ARGV[FIRST]), {}
batch_open.finish_all(ARGV, FIRST, ARGV[2], q.redis, function(id, fetch, found)
  if found then found[5] = q.score elseif not fetch then ended[#ended + 1] = id end
end)
local results, last = batch_open.results, batch_open.last
local freed = quick_groups.save(q, call, ended, began)
if freed then wake.one(base) end
if next(touched.bases) then touched.wake() end
local answer = last and quick_answer.reply(base, results, last, q.time)
-- BullMQ's text takes held jobs for none.
local held = answer and answer[5] == 'empty' and redis.call('EXISTS', base .. 'prioritized', base .. 'wait') > 0
if not answer or answer[5] == 'halted' or held then return { 1, as_text.us(q.now), results } end
-- A worker that takes the marker now would find no job.
if answer[5] == 'empty' and batch_open.fetched > 0 then redis.call('ZREM', base .. 'marker', '0') end
return answer
