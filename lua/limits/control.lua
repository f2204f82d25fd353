local wake = use 'gate/wake'
local as_text = use 'redis/as-text'

-- Shared state of all users of a limit besides the states of its keys: its control hash, with the definition of its
-- name; its switch, one string next to that hash, which each decision reads; and its waiting callers. Most limits have
-- no switch. Its words:
--   1 mode          set at run time, for all; '-' for the mode declared in code
--   2 blockedUntil  µs: after it no key is blocked
--   3 takenAt       µs: the last take by a caller that does not wait, if a share is reserved for such callers
--   4 version       of the stored definition, 0 for none
--   5 horizon       µs: the largest horizon with which jobs were recently granted ahead (limits/queue-limits), 0 for
--   none
--   6 horizonAt     µs: when it was stored
local limit_control = {
  -- How long a horizon is remembered.
  HORIZON_MEMORY_US = 60000000,
}

-- The control hash of a queue's limit. For a shared limit it is named as in src/limits/limit-keys.ts; if the queue's
-- prefix has a hash tag, it lies in the queue's hash slot.
function limit_control.of_queue(l, base)
  if not l.shared then return base .. 'meta:limit:' .. l.name end
  local tag = string.match(l.prefix or base, '{([^}]+)}')
  if tag then return (l.prefix or '{' .. tag .. '}') .. ':limit:' .. l.name end
  return (l.prefix or 'sluice') .. ':limit:{' .. l.name .. '}'
end

-- The same for a limit with `by`, which counts each value of its keys separately.
function limit_control.of_values(l, base)
  return l.shared and limit_control.of_queue(l, base) or base .. 'meta:group:limit:' .. l.name
end

-- The common beginning of the keys of its states, before the value.
function limit_control.states_of_values(l, base)
  return limit_control.of_values(l, base) .. string.match(l.state, '^:%a+:')
end

function limit_control.waiting(control)
  return control .. ':queues'
end

-- Wakes everything that waits for a shared limit: a worker of each other queue, and programs in limiter.wait.
function limit_control.call_others(control, base)
  redis.call('PUBLISH', control .. ':wake', '')
  for _, other in ipairs(redis.call('SMEMBERS', limit_control.waiting(control))) do
    redis.call('SREM', limit_control.waiting(control), other)
    if other ~= base then wake.sleeper(other) end
  end
end

function limit_control.key(control)
  return control .. ':switch'
end

-- text: the string, false if there is none
function limit_control.read(text)
  if not text then return '-', 0, 0, 0, 0, 0 end
  local mode, blocked_until, taken_at, version, horizon, horizon_at =
    string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  return mode, tonumber(blocked_until), tonumber(taken_at), tonumber(version), tonumber(horizon), tonumber(horizon_at)
end

-- Changes the given words. The switch is kept until none of them matters; lend: µs for which taken_at matters.
function limit_control.write(control, changes)
  local key = limit_control.key(control)
  local mode, blocked_until, taken_at, version, horizon, horizon_at = limit_control.read(redis.call('GET', key))
  mode, version = changes.mode or mode, changes.version or version
  blocked_until, taken_at = changes.blocked_until or blocked_until, changes.taken_at or taken_at
  horizon, horizon_at = changes.horizon or horizon, changes.horizon_at or horizon_at
  local ahead_until = horizon > 0 and horizon_at + limit_control.HORIZON_MEMORY_US or 0
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
function limit_control.block(control, state, now, at)
  local blocks = control .. ':blocks'
  redis.call('ZREMRANGEBYSCORE', blocks, '-inf', as_text.us(now))
  if at then redis.call('ZADD', blocks, 'GT', as_text.us(at), state) else redis.call('ZREM', blocks, state) end
  local last = redis.call('ZRANGE', blocks, -1, -1, 'WITHSCORES')[2]
  limit_control.write(control, { blocked_until = tonumber(last) or 0 })
  limit_control.call_others(control, '')
  if last then redis.call('PEXPIRE', blocks, math.ceil((last - now) / 1000) + 1000) end
  return tonumber(redis.call('ZSCORE', blocks, state) or 0)
end

-- Whether a definition (JSON, or false for none) is one of src/limits/spread-keys.ts. Names of tiers contain no quotes.
function limit_control.is_spread(definition)
  return definition and string.find(definition, '"spread":"key"', 1, true) ~= nil
end

-- The definition of a name (JSON), false for none, and its version or ''; third, whether another definition of that
-- version (an integer or nil) replaces it. A spread one never replaces one that is not, nor vice versa: their states
-- are stored in different places, so that a key would have twice the limit while both are in use.
function limit_control.defined(control, definition, version)
  local stored = redis.call('HMGET', control, 'definition', 'version')
  local current = tonumber(stored[2] or '')
  local alike = limit_control.is_spread(stored[1]) == limit_control.is_spread(definition)
  local outranks = not stored[1] or (alike and version and (not current or version > current))
  return stored[1], stored[2] or '', outranks
end

-- Stores a definition unless the name has another one; a higher version replaces it. Returns whether it applies, the
-- stored definition, and its version or ''.
function limit_control.define(control, definition, version, by)
  local stored, current, outranks = limit_control.defined(control, definition, version)
  if not outranks then return stored == definition, stored, current end
  -- Users of an older definition learn of this at their next decision. Written first: while the hash slot moves Redis
  -- may abort the script here, and a stored definition is assumed to be known to all users.
  limit_control.write(control, { version = version or 0 })
  redis.call('HSET', control, 'definition', definition, 'version', version or '', 'by', by)
  return true, definition, version or ''
end

return limit_control
