--[[
  Finishes the jobs that ended in one tick of a worker and starts as many if nothing holds the next ones: BullMQ's
  moveToFinished for each, under pcall with a reply of its own, which fetches the next job by itself. If something might
  hold them, nothing is done and all are left to lua/finish-batch.lua; so are single ends that BullMQ's script refuses
  because the lock is missing or this call was sent before.
  KEYS
    [1]  wait  [2] active  [3] prioritized  [4] events  [5] stalled  [6] limiter  [7] delayed  [8] paused  [9] meta
    [10] pc  [11] marker  [12] …:meta:shape
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  how long the end of a job that is not kept is remembered, ms
    [3]  '1' if jobs may leave although no shape is stored
    [4]  departures that nothing held, to be counted now, or -1 (lib/quick)
    [5]  key prefix
    then six for each job that ended, as in lua/finish-batch.lua
  Returns the first nine entries of the reply of lib/departure, with a list as result: for each job BullMQ's code, the
  text of an error, BullMQ's tuple with the next job, locked with the token of the job that ended, or nil if the end is
  left; only the first three if no job was looked for. Nil if all are left.
]]
--- @include "lib/batch-ends"
--- @include "lib/began"
--- @include "lib/delay-clock"
--- @include "lib/finished"
--- @include "lib/quick-answer"
--- @include "lib/without-fetch"
local FIRST = 6
local base, memo_ms, unreported = string.sub(KEYS[12], 1, -11), ARGV[2], ARGV[4]
ends.begin(KEYS, ARGV[5])
local wanted = ends.wanted(ARGV, FIRST)
if wanted > 0 then
  local open, stored = quick_open(KEYS[12], ARGV[1])
  if not open or not (stored or ARGV[3] == '1') then return false end
  delay_clock_known[base .. 'delayed'] = stored
  if not stored then unreported = '-1' end
end
-- When the first of them started, if that is to be recorded.
local began = wanted > 0 and unreported ~= '-1' and job_began(base, ARGV[FIRST])
local quiet = without_fetch.quiet(base)
local results, ended, fetched, last, dry = {}, 0, 0, nil, false
-- Whether this call was sent before: then its departures are counted already.
local repeated = false

-- Returns the result of a job.
local function finish(at)
  local kind = ends.kind(ARGV[at + 5])
  local fetch = kind.wants and not dry
  local done, reply = pcall(ends.finish, ARGV, at, fetch, fetch and redis or quiet)
  if not done then return type(reply) == 'table' and reply.err or tostring(reply) end
  if type(reply) == 'number' and reply < 0 then
    local code, again = finished_code(reply, base, kind.set, ARGV[at], ARGV[at + 1])
    repeated = repeated or again
    return not again and code ~= -2 and code
  end
  ended = ended + 1
  if kind.discarded then finished_remember(base, ARGV[at], ARGV[at + 1], memo_ms) end
  if not fetch then return 0 end
  last = reply
  if not quick_fetched(reply) then
    dry = true
    return 0
  end
  fetched = fetched + 1
  return reply
end

for at = FIRST, #ARGV, ends.FIELDS do results[#results + 1] = finish(at) end
if wanted == 0 then
  if ended > 0 then without_fetch.frees_place(base, ended) end
  return { 1, '', results }
end
local time = quick_note(base, repeated and '-1' or unreported, fetched, began)
return last and quick_answer(base, results, last, time) or { 1, '', results }
