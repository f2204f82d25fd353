--- @include "text"
--- @include "departures"
--- @include "grants"

-- What remains to be done where BullMQ's text could fetch the next job by itself: no rate holds it.

-- Keeps the grant for the case that its reply is lost, and counts it, as departure_remember and departure_save do.
local function quick_remember(base, reply, now, grant, caller, memo_ms)
  if type(reply) ~= 'table' or type(reply[1]) ~= 'table' then return end
  departures_note(base, 1, now)
  if caller == '' then return end
  local memo = { grant = grant, jobs = { { reply[2], us_text(now), '1', '0', '' } }, stop = 'full' }
  grants_keep(base, caller, memo, now, memo_ms)
end

-- Why BullMQ's text fetched nothing: it answers {0, 0, ms, 0} for its limiter, {0, 0, 0, 0} where the queue is paused or
-- at its limit of running jobs, and {0, 0, 0, time} or nothing where no job waits.
local function quick_stop(base, tuple)
  if not tuple then return 'empty' end
  if tonumber(tuple[3]) > 0 then return 'limited' end
  if tonumber(tuple[4]) > 0 then return 'empty' end
  local waiting = redis.call('LLEN', base .. 'wait') > 0 or redis.call('ZCARD', base .. 'prioritized') > 0
  return waiting and 'halted' or 'empty'
end

-- The rest of the answer of lib/departure (4 to 9) for what BullMQ's text fetched by itself.
local function quick_answer(base, reply, now)
  local tuple = type(reply) == 'table' and reply
  if tuple and type(tuple[1]) == 'table' then return { { tuple[1], tuple[2], now, '1', '0', '' } }, 'full', '', '', 0, 0 end
  return {}, quick_stop(base, tuple), '', '', tuple and math.floor(tuple[4]) or 0, tuple and tuple[3] or 0
end
