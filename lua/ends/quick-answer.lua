local quick_path = use 'ends/quick-path'
local pace = use 'meter/pace'
local as_text = use 'redis/as-text'

-- What the ends of jobs report that were handled as in ends/quick-path.

local quick_answer = {}

-- Counts departures, including those of earlier calls, which the caller reports from time to time (unreported; -1: not
-- now). began: as in meter/pace. Returns Redis's reply to TIME.
function quick_answer.note(base, unreported, count, began)
  local time = redis.call('TIME')
  local sum = tonumber(unreported) + count
  if unreported ~= '-1' and (sum > 0 or began) then pace.count(base, sum, time[1] * 1000000 + time[2], began) end
  return time
end

-- Why BullMQ's script fetched nothing: it returns {0, 0, ms, 0} for its limiter, {0, 0, 0, 0} if the queue is paused or
-- at its limit of running jobs, and {0, 0, 0, time} or nothing if no job waits.
local function quick_stop(base, tuple)
  if not tuple then return 'empty' end
  if tonumber(tuple[3]) > 0 then return 'limited' end
  if tonumber(tuple[4]) > 0 then return 'empty' end
  local waiting = redis.call('LLEN', base .. 'wait') > 0 or redis.call('ZCARD', base .. 'prioritized') > 0
  return waiting and 'halted' or 'empty'
end

-- The reply of gate/departure, up to limited, if BullMQ's script granted nothing more, or as much as was requested.
-- time: Redis's reply to TIME
function quick_answer.reply(base, result, reply, time)
  local now = as_text.time(time)
  if quick_path.fetched(reply) then return { 1, now, result, {}, 'full', '', '', 0, 0 } end
  local tuple = type(reply) == 'table' and reply
  return { 1, now, result, {}, quick_stop(base, tuple), '', '', tuple and math.floor(tuple[4]) or 0, tuple and tuple[3] or 0 }
end

return quick_answer
