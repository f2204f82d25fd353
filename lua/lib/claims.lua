-- Claims: places that a bulk in several parts has taken before its jobs arrive. They end with their lease, so that a
-- producer that dies in between blocks nothing for long.
local function claims_key(base)
  return base .. 'meta:claims'
end

local function claims_add(shape_key, base, id, n, now, lease_ms)
  local key = claims_key(base)
  if redis.call('HEXISTS', key, id) == 1 then return end
  redis.call('HSET', key, id, n)
  redis.call('PEXPIRE', key, lease_ms)
  local f = redis.call('HMGET', shape_key, 'claimed', 'claimedUntil')
  local claimed = (tonumber(f[2]) or 0) > now and tonumber(f[1]) or 0
  redis.call('HSET', shape_key, 'claimed', claimed + n, 'claimedUntil', string.format('%.0f', now + lease_ms * 1000))
end

-- Gives back up to n places of a claim, and tells how many: jobs have come in for them, or will not come.
local function claims_use(shape_key, base, id, n)
  local key = claims_key(base)
  local left = tonumber(redis.call('HGET', key, id)) or 0
  local used = math.min(left, n)
  if used <= 0 then return 0 end
  redis.call('HINCRBY', key, id, -used)
  local claimed = tonumber(redis.call('HGET', shape_key, 'claimed')) or 0
  redis.call('HSET', shape_key, 'claimed', math.max(0, claimed - used))
  return used
end
