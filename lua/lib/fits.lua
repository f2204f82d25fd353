-- Whether this many more jobs certainly fit: then it does not matter whether some are duplicates. cost: the highest
-- among them
local function fits_surely(key, base, identity, jobs, cost)
  local f = redis.call('HMGET', key, 'born', 'rev', 'capacity', 'mode', 'expires', 'claimed', 'interval', 'burst', 'limits',
    'reservedPlaces', 'maxWaitMs', 'groups', 'priorityAgeingMs')
  if not f[1] then return identity == '' end
  if (f[4] and f[4] ~= 'enforce') or f[5] or (f[6] and f[6] ~= '0') or f[11] or f[12] or f[13] then return false end
  if f[1] .. ':' .. f[2] ~= identity then return false end
  if f[7] and cost > (tonumber(f[8]) or 1) then return false end
  -- Few queues have any of these: one call replaces three counts.
  local others = redis.call('EXISTS', base .. 'delayed', base .. 'prioritized', base .. 'waiting-children') > 0
  local delayed = others and redis.call('ZCARD', base .. 'delayed') or 0
  -- A delayed job may have to wake a worker that sleeps for its slot.
  if (f[7] or f[9]) and delayed > 0 then return false end
  if not f[3] then return true end
  local places = tonumber(f[3])
  -- Unreserved places; the reserved sum comes first in the field.
  if f[10] then places = places - tonumber(string.match(f[10], '^%d+')) end
  local depth = redis.call('LLEN', base .. 'wait') + delayed
  if others then
    depth = depth + redis.call('ZCARD', base .. 'prioritized') + redis.call('ZCARD', base .. 'waiting-children')
  end
  return depth + jobs <= places
end
