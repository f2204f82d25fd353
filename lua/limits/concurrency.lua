local limit_state = use 'limits/state'
local as_text = use 'redis/as-text'
local keep_key = use 'redis/keep-key'

-- Limits how many run at once. Each holder has a lease, which it extends or gives back; that of a dead holder expires.
--   l.limit   leases at once; a cost of n takes n of them
--   l.window  µs that a lease lasts
-- A lease named by a job's key lasts as long as the job's lock: those that have run out are renewed at the next look,
-- and what extends the lock keeps the sorted set (queue_limits.keep_places), or it would expire while no job is looked for.
--   s.lock_ms  how long the lock of such a job lasts at first
-- A sorted set: member = '1 ' and the lease ('2 ' and so on for the others of one decision), score = when it expires
-- (µs).
-- A waiting caller gets the time at which enough leases expire, an estimate: most are given back earlier.
local function count(key, now)
  return redis.call('ZCOUNT', key, '(' .. as_text.us(now), '+inf')
end

-- Keys of jobs contain a colon, other leases do not.
local function runs(member)
  local job_key = string.match(member, '^%d+ (.*:.*)$')
  return job_key and redis.call('EXISTS', job_key .. ':lock') == 1, job_key
end

local function expire(key, now, lock_ms)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  if not last then return end
  keep_key(key, math.max(math.ceil((last - now) / 1000), lock_ms or 0) + limit_state.SLACK_MS)
end

local function open(key, l, now)
  local renewed = false
  for _, lease in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', as_text.us(now))) do
    if runs(lease) then
      redis.call('ZADD', key, as_text.us(now + l.window), lease)
      renewed = true
    end
  end
  if renewed then expire(key, now) end
  return { key = key, now = now, used = count(key, now) }
end

local function earliest(s, l, cost)
  -- Jobs that have ended do not give their leases back: if there is no place, the leases are checked.
  if s.used + cost > l.limit then
    for _, lease in ipairs(redis.call('ZRANGE', s.key, 0, -1)) do
      local running, job_key = runs(lease)
      if job_key and not running then redis.call('ZREM', s.key, lease) end
    end
    s.used = count(s.key, s.now)
  end
  local missing = s.used + math.min(cost, l.limit) - l.limit
  if missing <= 0 then return 0 end
  local found = redis.call('ZRANGEBYSCORE', s.key, '(' .. as_text.us(s.now), '+inf', 'WITHSCORES', 'LIMIT', missing - 1, 1)
  -- Leases that are only planned are not stored.
  return math.max(0, (tonumber(found[2]) or s.now + l.window) - s.now)
end

-- s.lease: the name of the lease
local function charge(s, l, cost, offset)
  s.used = s.used + cost
  if s.planned then return end
  local ends = as_text.us(s.now + math.ceil(offset) + l.window)
  for i = 1, cost do
    redis.call('ZADD', s.key, ends, i .. ' ' .. s.lease)
  end
end

local function save(s)
  redis.call('ZREMRANGEBYSCORE', s.key, '-inf', as_text.us(s.now))
  expire(s.key, s.now, s.lock_ms)
end

local function view(s, l)
  local last = redis.call('ZRANGE', s.key, -1, -1, 'WITHSCORES')
  return l.limit - s.used, s.used > 0 and tonumber(last[2]) or s.now
end

return { open = open, earliest = earliest, charge = charge, save = save, view = view }
