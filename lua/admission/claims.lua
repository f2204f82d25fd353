local claims = {}

-- Claims: places that a bulk in several parts takes before its jobs arrive: a hash, claim id -> 'places:end' (µs). Each
-- ends with its own lease, so that a producer that dies in between blocks nothing for long. The shape keeps their sum
-- and the latest end, so that admissions need not read the claims.
-- Drops expired claims and stores the sum.
function claims.sum(shape_key, base, now)
  local key = base .. 'meta:claims'
  local claims, sum, latest = redis.call('HGETALL', key), 0, 0
  for i = 1, #claims, 2 do
    local places, ends = string.match(claims[i + 1], '^(%d+):(%d+)$')
    if tonumber(ends) <= now or places == '0' then
      redis.call('HDEL', key, claims[i])
    else
      sum, latest = sum + tonumber(places), math.max(latest, tonumber(ends))
    end
  end
  redis.call('HSET', shape_key, 'claimed', sum, 'claimedUntil', string.format('%.0f', latest))
end

function claims.set(shape_key, base, id, places, now, lease_ms)
  local key = base .. 'meta:claims'
  redis.call('HSET', key, id, string.format('%.0f:%.0f', places, now + lease_ms * 1000))
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), lease_ms))
  claims.sum(shape_key, base, now)
end

-- The remaining places of a claim, nil if it has ended.
function claims.left(base, id, now)
  local claim = redis.call('HGET', base .. 'meta:claims', id)
  if not claim then return nil end
  local places, ends = string.match(claim, '^(%d+):(%d+)$')
  return tonumber(ends) > now and tonumber(places) or nil
end

-- Takes the places of `jobs` new jobs from a claim, and renews its lease. Returns false, and takes nothing, if the
-- claim has too few.
function claims.take(shape_key, base, id, jobs, now, lease_ms)
  local left = claims.left(base, id, now)
  if not left or jobs > left then return false end
  claims.set(shape_key, base, id, left - jobs, now, lease_ms)
  return true
end

-- Ends a claim whose remaining jobs will not arrive.
function claims.drop(shape_key, base, id, now)
  redis.call('HDEL', base .. 'meta:claims', id)
  claims.sum(shape_key, base, now)
end

return claims
