-- The state of one key of a limit: a few numbers, packed as doubles into one string. It expires when it no longer
-- matters; no decision depends on that, since each uses the stored times.

local limit_state = {}

-- The numbers in order, or nothing if none are stored. packed: the string, false if there is none, nil if it must be
-- read
function limit_state.load(key, format, packed)
  if packed == nil then packed = redis.call('GET', key) end
  if packed then return struct.unpack(format, packed) end
end

-- Charges unconditionally, or refunds, and stores the state.
function limit_state.settle(l, s, cost)
  l.verbs.adjust(s, l, cost)
  l.verbs.save(s, l)
end

-- How much of a charge made at `since` (µs) can be refunded: what has refilled since then may have gone to others, and
-- what refills until the last granted slot has been promised to them.
function limit_state.credit(l, s, cost, since)
  if l.interval then return math.max(0, cost - math.max(0, s.now + math.max(0, s.ahead) - since) / l.interval) end
  if l.verbs.charged_until then return math.min(cost, math.max(0, l.verbs.charged_until(s, since) - s.base)) end
  return since >= s.start and cost or 0
end

-- Undoes the last charge, if nothing came after it, and stores the state.
function limit_state.undo(l, s, cost)
  local remove = l.verbs.remove
  if remove then remove(s, l, cost) else l.verbs.adjust(s, l, -cost) end
  l.verbs.save(s, l)
end

-- Identifies a state: the same stamp means the same state.
function limit_state.stamp(key, algorithm)
  if algorithm == 'sliding-window-log' then return redis.call('ZRANGE', key, -1, -1)[1] or '' end
  return redis.sha1hex(redis.call('GET', key) or '')
end

return limit_state
