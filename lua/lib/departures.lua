-- Departures of the last minute, by two counters: what a queue without a rate reckons its refusals with.
local MINUTE_US = 60000000

local function departures_note(key, count, now)
  local minute = math.floor(now / MINUTE_US)
  local f = redis.call('HMGET', key, 'minute', 'left')
  if tonumber(f[1]) == minute then
    redis.call('HINCRBY', key, 'left', count)
  else
    local before = tonumber(f[1]) == minute - 1 and f[2] or 0
    redis.call('HSET', key, 'minute', minute, 'left', count, 'leftBefore', before)
  end
end

-- Departures per µs over the last minute, 0 where there was none.
local function departures_rate(key, now)
  local minute = math.floor(now / MINUTE_US)
  local f = redis.call('HMGET', key, 'minute', 'left', 'leftBefore')
  local noted, left, before = tonumber(f[1]), tonumber(f[2]) or 0, tonumber(f[3]) or 0
  if noted == minute - 1 then before, left = left, 0 elseif noted ~= minute then return 0 end
  local elapsed = now % MINUTE_US / MINUTE_US
  return (left + before * (1 - elapsed)) / MINUTE_US
end
