local queue_places = use 'limits/queue-places'
local as_text = use 'redis/as-text'

-- The switch of a limit: what all its users must know at each decision, in one string next to its control hash.
-- Most limits have none. Its words:
--   1 mode          set at run time, for all; '-' for the mode declared in code
--   2 blockedUntil  µs: after it no key is blocked
--   3 takenAt       µs: the last take by a caller that does not wait, if a share is reserved for such callers
--   4 version       of the definition in force, 0 for none
--   5 horizon       µs: the largest horizon with which jobs were recently granted ahead (limits/horizon), 0 for none
--   6 horizonAt     µs: when it was stored
local limit_switch = {
  -- How long a horizon is remembered.
  HORIZON_MEMORY_US = 60000000,
}

function limit_switch.key(control)
  return control .. ':switch'
end

-- text: the string, false if there is none
function limit_switch.read(text)
  if not text then return '-', 0, 0, 0, 0, 0 end
  local mode, blocked_until, taken_at, version, horizon, horizon_at =
    string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  return mode, tonumber(blocked_until), tonumber(taken_at), tonumber(version), tonumber(horizon), tonumber(horizon_at)
end

-- Changes the given words. The switch is kept until none of them matters; lend: µs for which taken_at matters.
function limit_switch.write(control, changes)
  local key = limit_switch.key(control)
  local mode, blocked_until, taken_at, version, horizon, horizon_at = limit_switch.read(redis.call('GET', key))
  mode, version = changes.mode or mode, changes.version or version
  blocked_until, taken_at = changes.blocked_until or blocked_until, changes.taken_at or taken_at
  horizon, horizon_at = changes.horizon or horizon, changes.horizon_at or horizon_at
  local ahead_until = horizon > 0 and horizon_at + limit_switch.HORIZON_MEMORY_US or 0
  local lasts = math.max(blocked_until, taken_at + (changes.lend or 0), ahead_until)
  if mode == '-' and version == 0 and lasts == 0 then return redis.call('DEL', key) end
  local text = table.concat({ mode, as_text.us(blocked_until), as_text.us(taken_at), as_text.us(version), as_text.us(horizon),
    as_text.us(horizon_at) }, ' ')
  local kept = redis.call('PTTL', key)
  redis.call('SET', key, text)
  if mode ~= '-' or version > 0 then return end
  redis.call('PEXPIREAT', key, math.ceil(lasts / 1000) + 1000)
  if kept > 0 then redis.call('PEXPIRE', key, kept, 'GT') end
end

-- Blocks a key of a limit until `at` (µs), whatever its state, or lifts its block if `at` is nil. A block is never shortened.
-- Returns its end, 0 if there is none.
function limit_switch.block(control, state, now, at)
  local blocks = control .. ':blocks'
  redis.call('ZREMRANGEBYSCORE', blocks, '-inf', as_text.us(now))
  if at then redis.call('ZADD', blocks, 'GT', as_text.us(at), state) else redis.call('ZREM', blocks, state) end
  local last = redis.call('ZRANGE', blocks, -1, -1, 'WITHSCORES')[2]
  limit_switch.write(control, { blocked_until = tonumber(last) or 0 })
  queue_places.call_others(control, '')
  if last then redis.call('PEXPIRE', blocks, math.ceil((last - now) / 1000) + 1000) end
  return tonumber(redis.call('ZSCORE', blocks, state) or 0)
end

return limit_switch
