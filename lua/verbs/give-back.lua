--[[
  Puts jobs that were granted but not started back at the head of the queue, in order, as if never started. A job whose
  lock no longer belongs to the caller stays. A long list comes in several calls, the first jobs first.
  ARGV
    [1]  number of the grant of the whole list's last job, '' if no slots are refunded here
    [2]  cost of the slots at the end of the whole list with no slot for other workers in between, µs
    [3]  the slot granted before the first of these, µs
    [4]  id of a leaving worker: its wake-up time goes to another; '' if the worker stays
    [5]  the last job of the wait list that an earlier call put back: while it waits, these go behind it; or ''
    [6]  for a later call of a leaving worker, whether the first one refunded the slots of these jobs: 1, or 0 if
         unknown; else ''
    then three for each job, in the order of their slots: id, lock token, score of a prioritized job or ''
  Returns {jobs put back, 1 if slots were refunded}.
]]
local put_back = use 'ends/put-back'
local unstarted = use 'ends/unstarted'
local wake = use 'gate/wake'
local queue_limits = use 'limits/queue-limits'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'

local FIELDS, FIRST = 3, 7
-- At most this many jobs are searched for the one that these go behind.
local MOST_AHEAD = 1000
local base = string.sub(KEYS[1], 1, -11)

local jobs = (#ARGV - FIRST + 1) / FIELDS
local back, leaving = 0, {}
for job = 1, jobs do
  local at = FIRST + (job - 1) * FIELDS
  if redis.call('GET', base .. ARGV[at] .. ':lock') == ARGV[at + 1] then leaving[ARGV[at]] = true end
end
local shape, granted = unstarted.give_back(base, leaving)
-- Takes the jobs of earlier calls off the head of the wait list meanwhile.
local wait = base .. 'wait'
local first = ARGV[5] ~= '' and redis.call('LPOS', wait, ARGV[5], 'RANK', -1, 'MAXLEN', MOST_AHEAD)
local ahead = first and redis.call('RPOP', wait, redis.call('LLEN', wait) - first) or {}
for job = jobs, 1, -1 do
  local at = FIRST + (job - 1) * FIELDS
  if put_back.job(base, ARGV[at], ARGV[at + 1], ARGV[at + 2]) then back = back + 1 end
end
for i = #ahead, 1, -1 do redis.call('RPUSH', wait, ahead[i]) end
-- A leaving worker may have consumed a marker: it is set again for another worker.
if back > 0 or ARGV[4] ~= '' then wake.marked(base) end
if ARGV[4] ~= '' then wake.when_due(base) end
if back > 0 then queue_limits.freed(base, redis.call('HGET', KEYS[1], 'limits')) end
-- A resent call finds no jobs, and refunds no second time. The caller cannot use any of the slots, even those of jobs
-- that come in later calls.
local cost_us, refunded = tonumber(ARGV[2]) or 0, 0
local m = ARGV[1] ~= '' and back == jobs and cost_us > 0 and meter.stored(base, shape)
-- Only the slots granted last can be reused: lowering TAT in the middle would grant one twice.
if m and m.seq == tonumber(ARGV[1]) then
  bucket.refund(m, cost_us, meter.at(m, tonumber(ARGV[3])))
  meter.store(base .. 'meta:meter', m)
  refunded = 1
end

if back > 0 and redis.call('EXISTS', KEYS[1]) == 1 then
  -- How many of the returned jobs had slots that are refunded. A later call refunds none: if the reply of the first was
  -- lost, that one may have refunded them.
  local count = back
  if refunded == 0 and ARGV[6] ~= '1' then count = ARGV[6] == '' and shape and unstarted.refund_meter(base, shape, granted) or 0 end
  redis.call('HINCRBY', base .. 'meta:meter', 'departedTotal', -back)
  if count > 0 then redis.call('HINCRBY', base .. 'meta:meter', 'refundedTotal', count) end
  if count < back then redis.call('HINCRBY', base .. 'meta:meter', 'forfeitedTotal', back - count) end
end
if ARGV[4] ~= '' then
  local slept = redis.call('ZREM', base .. 'meta:sleepers', ARGV[4])
  if slept > 0 or back > 0 then wake.sleeper(base) end
end
return { back, refunded }
