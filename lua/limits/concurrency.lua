local limit_state = use 'limits/state'
local as_text = use 'redis/as-text'
local keep_key = use 'redis/keep-key'

-- Limits how many run at once. Each holder has a lease, which it extends or gives back; the lease of a dead holder
-- expires.
--   l.limit   leases at once; a cost of n takes n of them
--   l.window  µs that a lease lasts
-- A lease named by a job's key lasts as long as the job's lock: expired ones are renewed at the next check, and
-- extending the lock keeps the sorted set (queue_limits.keep_places), which would otherwise expire while no job is
-- looked for.
--   s.lock_ms  how long the lock of such a job lasts at first
-- A sorted set: member = '1 ' and the lease ('2 ' and so on for the others of one decision), score = when it expires
-- (µs). A waiting caller gets the time at which enough leases expire, an estimate: most are given back earlier.
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

-- Renews expired leases whose jobs still run.
local function renew(s, l)
  for _, lease in ipairs(s.overrun) do redis.call('ZADD', s.key, as_text.us(s.now + l.window), lease) end
  if s.overrun[1] then expire(s.key, s.now) end
  s.overrun = {}
end

-- Read-only scripts check cells of limits with keys, too: these are renewed later.
local function open(key, l, now)
  local s, over = { key = key, now = now, overrun = {} }, redis.call('ZRANGEBYSCORE', key, '-inf', as_text.us(now))
  s.has_ended = over[1] ~= nil
  for _, lease in ipairs(over) do
    if runs(lease) then s.overrun[#s.overrun + 1] = lease end
  end
  s.used = count(key, now) + #s.overrun
  if not l.by then renew(s, l) end
  return s
end

-- Removes the leases of jobs without a lock: they have ended, or their workers have died. most: how many are checked,
-- others each time; nil for all. Returns how many were.
local function verify(s, l, most)
  renew(s, l)
  local size = most and redis.call('ZCARD', s.key) or 0
  local from = size > (most or 0) and s.now % size or 0
  local leases = redis.call('ZRANGE', s.key, from, most and from + most - 1 or -1)
  for _, lease in ipairs(leases) do
    local running, job_key = runs(lease)
    if job_key and not running then redis.call('ZREM', s.key, lease) end
  end
  s.used = count(s.key, s.now)
  return #leases
end

local function earliest(s, l, cost)
  -- Ended jobs give back their leases of a limit with keys (groups/places), but no other leases: if there is no place,
  -- these are checked.
  if s.used + cost > l.limit and not l.by then verify(s, l, nil) end
  local missing = s.used + math.min(cost, l.limit) - l.limit
  if missing <= 0 then return 0 end
  if l.by then return math.huge end
  local found = redis.call('ZRANGEBYSCORE', s.key, '(' .. as_text.us(s.now), '+inf', 'WITHSCORES', 'LIMIT', missing - 1, 1)
  -- Planned leases are not stored.
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

-- A lease for that cost is given back.
local function give_back(key, lease, cost)
  for i = 1, cost do redis.call('ZREM', key, i .. ' ' .. lease) end
end

local function save(s, l)
  renew(s, l)
  if s.has_ended then redis.call('ZREMRANGEBYSCORE', s.key, '-inf', as_text.us(s.now)) end
  expire(s.key, s.now, s.lock_ms)
end

local function view(s, l)
  local last = redis.call('ZRANGE', s.key, -1, -1, 'WITHSCORES')
  return l.limit - s.used, s.used > 0 and tonumber(last[2]) or s.now
end

return { open = open, earliest = earliest, charge = charge, save = save, view = view, verify = verify, give_back = give_back }
