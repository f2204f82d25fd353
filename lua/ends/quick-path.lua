-- If no rate and no pause holds the next job, and it is the one that BullMQ has next, its script fetches it by itself.
-- That is determined before other modules are made, whose functions alone would cost more than BullMQ's work.

local quick_path = {}

-- Whether every job may leave now, for a caller that knows this shape; second, whether a shape is stored; third, if
-- only an enforced rate and limits may hold them, its interval and these (JSON); fourth, whether only groups may.
function quick_path.open(key, identity)
  local f = redis.call('HMGET', key, 'born', 'rev', 'interval', 'pausedUntil', 'expires', 'limits', 'mode', 'probe',
    'ownConcurrency', 'audit', 'groups', 'priorityAgeingMs')
  if not f[1] then return identity == '', false end
  if f[8] or f[9] or f[12] or f[1] .. ':' .. f[2] ~= identity then return false, true end
  if f[4] or f[5] then
    local now_ms = redis.call('TIME')[1] * 1000
    if (f[4] and f[4] / 1000 > now_ms) or (f[5] and tonumber(f[5]) <= now_ms + 1000) then return false, true end
  end
  -- Audited departures go through the gate.
  local enforced = (f[7] or 'enforce') == 'enforce' and not f[10]
  if f[11] then return false, true, nil, enforced and not (f[3] or f[6]) end
  if not f[3] and not f[6] then return true, true end
  return false, true, enforced and { interval = f[3], limits = f[6] } or nil
end

-- The same, faster for the common case: the field `open` (shape/shapes) is read instead of twelve.
function quick_path.open_known(key, identity)
  local f = redis.call('HMGET', key, 'rev', 'open')
  if not f[1] then return identity == '', false end
  -- An older version of this package changes the revision and leaves the field as it was.
  if f[2] and f[2] == identity and string.sub(identity, -#f[1] - 1) == ':' .. f[1] then return true, true end
  return quick_path.open(key, identity)
end

function quick_path.fetched(reply)
  return type(reply) == 'table' and type(reply[1]) == 'table'
end

return quick_path
