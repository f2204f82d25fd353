--- @include "departures"

-- If no rate and no pause holds the next job, and it is the one that BullMQ has next, its script fetches it by itself. That is determined before the rest
-- of a script is set up, whose functions alone would cost more than BullMQ's work; this file includes little for the
-- same reason.

-- Whether every job may leave now, for a caller that knows this shape; second, whether a shape is stored; third, if
-- only an enforced rate and limits may hold them, its interval and these (JSON).
local function quick_open(key, identity)
  local f = redis.call('HMGET', key, 'born', 'rev', 'interval', 'pausedUntil', 'expires', 'limits', 'mode', 'probe',
    'ownConcurrency', 'audit', 'groups', 'priorityAgeingMs')
  if not f[1] then return identity == '', false end
  if f[8] or f[9] or f[11] or f[12] or f[1] .. ':' .. f[2] ~= identity then return false, true end
  if f[4] or f[5] then
    local now_ms = redis.call('TIME')[1] * 1000
    if (f[4] and f[4] / 1000 > now_ms) or (f[5] and tonumber(f[5]) <= now_ms + 1000) then return false, true end
  end
  if not f[3] and not f[6] then return true, true end
  -- Audited departures go through the gate.
  local enforced = (f[7] or 'enforce') == 'enforce' and not f[10]
  return false, true, enforced and { interval = f[3], limits = f[6] } or nil
end

local function quick_fetched(reply)
  return type(reply) == 'table' and type(reply[1]) == 'table'
end

-- Counts departures, including those of earlier calls, which the caller reports from time to time (unreported; -1: not
-- now). began: as in lib/departures. Returns Redis's reply to TIME.
local function quick_note(base, unreported, count, began)
  local time = redis.call('TIME')
  local sum = tonumber(unreported) + count
  if unreported ~= '-1' and (sum > 0 or began) then departures_note(base, sum, time[1] * 1000000 + time[2], began) end
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

-- The reply of lib/departure, up to limited, if BullMQ's script granted nothing more, or as much as was requested.
-- time: Redis's reply to TIME
local function quick_answer(base, result, reply, time)
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  if quick_fetched(reply) then return { 1, now, result, {}, 'full', '', '', 0, 0 } end
  local tuple = type(reply) == 'table' and reply
  return { 1, now, result, {}, quick_stop(base, tuple), '', '', tuple and math.floor(tuple[4]) or 0, tuple and tuple[3] or 0 }
end
