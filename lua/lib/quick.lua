--- @include "text"
--- @include "departures"
--- @include "grants"

-- Most calls find nothing to decide. They are answered before the rest of a script is even set up: its functions alone
-- would cost more than BullMQ's work.

-- 'none' where no shape is stored and none is known to the caller; 'open' where the one that it knows lets every job
-- leave now; nil where the meter has to be asked.
local function quick_departure(key, identity)
  local f = redis.call('HMGET', key, 'born', 'rev', 'interval', 'pausedUntil', 'expires')
  if not f[1] then return identity == '' and 'none' or nil end
  if f[3] or f[4] or f[5] or f[1] .. ':' .. f[2] ~= identity then return nil end
  return 'open'
end

-- True where one more job fits for sure: then nobody has to know whether it is a duplicate. `job` is JSON, the cost first.
local function quick_admission(key, base, identity, job)
  local f = redis.call('HMGET', key, 'born', 'rev', 'capacity', 'mode', 'expires', 'claimed', 'interval', 'burst')
  if not f[1] then return identity == '' end
  if f[4] or f[5] or (f[6] and f[6] ~= '0') or f[1] .. ':' .. f[2] ~= identity then return false end
  if f[7] and tonumber(string.match(job, '^%[([^,]+)')) > (tonumber(f[8]) or 1) then return false end
  local delayed = redis.call('ZCARD', base .. 'delayed')
  -- A delayed job may have to wake a worker that sleeps for its slot.
  if f[7] and delayed > 0 then return false end
  if not f[3] then return true end
  return redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized') + delayed
    + redis.call('ZCARD', base .. 'waiting-children') < tonumber(f[3])
end

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
