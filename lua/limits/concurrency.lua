--- @include "lib/limit-state"

-- How many at once. Each holder has a lease, which it extends or gives back; that of a dead one runs out.
--   l.limit   leases at once; a cost of n takes n of them
--   l.window  µs that a lease lasts
-- A sorted set: member = lease (the second of one decision ends with '#2', and so on), score = when it runs out (µs).
-- Whoever waits is answered with the time at which enough leases run out, an estimate: most are given back before.
limit_factories['concurrency'] = function()
  local function open(key, l, now)
    return { key = key, now = now, used = redis.call('ZCOUNT', key, '(' .. us_text(now), '+inf') }
  end

  local function earliest(s, l, cost)
    local missing = s.used + math.min(cost, l.limit) - l.limit
    if missing <= 0 then return 0 end
    local found = redis.call('ZRANGEBYSCORE', s.key, '(' .. us_text(s.now), '+inf', 'WITHSCORES', 'LIMIT', missing - 1, 1)
    return math.max(0, tonumber(found[2]) - s.now)
  end

  -- s.lease: the name of the lease
  local function commit(s, l, cost, offset)
    redis.call('ZREMRANGEBYSCORE', s.key, '-inf', us_text(s.now))
    local ends = us_text(s.now + math.ceil(offset) + l.window)
    for i = 1, cost do
      redis.call('ZADD', s.key, ends, i == 1 and s.lease or s.lease .. '#' .. i)
    end
    s.used = s.used + cost
    local last = tonumber(redis.call('ZRANGE', s.key, -1, -1, 'WITHSCORES')[2])
    redis.call('PEXPIRE', s.key, string.format('%.0f', math.ceil((last - s.now) / 1000) + LIMIT_SLACK_MS))
  end

  local function view(s, l)
    local last = redis.call('ZRANGE', s.key, -1, -1, 'WITHSCORES')
    return l.limit - s.used, s.used > 0 and tonumber(last[2]) or s.now
  end

  return { open = open, earliest = earliest, commit = commit, view = view }
end
