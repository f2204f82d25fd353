--[[
  Finishes the jobs that ended in one tick of a worker and starts as many if nothing holds the next ones: BullMQ's
  moveToFinished for each, under pcall with a reply of its own, which fetches the next job by itself. If something might
  hold them, nothing is done and all are left to lua/verbs/finish-batch.lua; so are single ends that BullMQ's script refuses
  because the lock is missing or this call was sent before.
  KEYS
    [1]  wait  [2] active  [3] prioritized  [4] events  [5] stalled  [6] limiter  [7] delayed  [8] paused  [9] meta
    [10] pc  [11] marker  [12] …:meta:shape
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  how long the end of a job that is not kept is remembered, ms
    [3]  '1' if jobs may leave although no shape is stored
    [4]  departures that nothing held, to be counted now, or -1 (ends/quick-path)
    [5]  key prefix
    then six for each job that ended, as in lua/verbs/finish-batch.lua
  Returns the first nine entries of the reply of gate/departure, with a list as result: for each job BullMQ's code, the
  text of an error, BullMQ's tuple with the next job, locked with the token of the job that ended, or nil if the end is
  left; only the first three if no job was looked for. Nil if all are left.
]]
local batch_open = use 'ends/batch-open'
local ends = use 'ends/ends'
local job_began = use 'ends/job-began'
local quick_answer = use 'ends/quick-answer'
local quick_path = use 'ends/quick-path'
local without_fetch = use 'ends/without-fetch'
local touched = use 'gate/touched'
local delay_clock = use 'redis/delay-clock'

local FIRST = 6
local base, unreported = string.sub(KEYS[12], 1, -11), ARGV[4]
ends.begin(KEYS, ARGV[5])
local wanted = ends.wanted(ARGV, FIRST)
if wanted > 0 then
  local open, stored = quick_path.open_known(KEYS[12], ARGV[1])
  if not open or not (stored or ARGV[3] == '1') then return false end
  delay_clock.known[base .. 'delayed'] = stored
  if not stored then unreported = '-1' end
end
-- When the first of them started, if that is to be recorded.
local began = wanted > 0 and unreported ~= '-1' and job_began(base, ARGV[FIRST])
batch_open.finish_all(ARGV, FIRST, ARGV[2], redis)
local results, last = batch_open.results, batch_open.last
if next(touched.bases) then touched.wake() end
if wanted == 0 then
  if batch_open.ended > 0 then without_fetch.frees_place(base, batch_open.ended) end
  return { 1, '', results }
end
local time = quick_answer.note(base, batch_open.repeated and '-1' or unreported, batch_open.fetched, began)
return last and quick_answer.reply(base, results, last, time) or { 1, '', results }
