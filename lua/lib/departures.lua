-- Departures of a queue without a rate: of this and the last minute, one counter each, by which its refusals are reckoned,
-- and all of them, which a queue with a rate counts in its meter (lib/meter).
local MINUTE_US = 60000000

local function departures_key(base, minute)
  return base .. 'meta:departed:' .. string.format('%.0f', minute)
end

-- minute: whole minutes since 1970
local function departures_note(base, count, minute)
  local key = departures_key(base, minute)
  if redis.call('INCRBY', key, count) == count then redis.call('PEXPIRE', key, 180000) end
  redis.call('HINCRBY', base .. 'meta:meter', 'departedTotal', count)
end

-- Departures per µs over the last minute, 0 where there was none.
local function departures_rate(base, now)
  local minute = math.floor(now / MINUTE_US)
  local left = tonumber(redis.call('GET', departures_key(base, minute))) or 0
  local before = tonumber(redis.call('GET', departures_key(base, minute - 1))) or 0
  local elapsed = now % MINUTE_US / MINUTE_US
  return (left + before * (1 - elapsed)) / MINUTE_US
end
