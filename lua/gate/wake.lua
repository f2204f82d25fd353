local as_text = use 'redis/as-text'
local call_state = use 'redis/call-state'
local redis_now = use 'redis/redis-now'
local job_options = use 'shape/job-options'

-- All wake-ups by scripts: a job may start sooner than the workers know. A worker sleeps until a time of its own
-- (meta:sleepers, worker id -> µs: gate/sleepers) while something holds the head of the queue, or waits for BullMQ's
-- marker while nothing waits, the queue is paused, or every place of its concurrency is taken. One of them is woken: it
-- takes all it can, and hands on the rest (gate/departure).
local wake = {}

-- A worker whose wake-up time is longer ago than this, µs, is dead.
wake.DEAD_US = 50000

-- The sleeper that asks first, and when, µs; nil if none sleeps.
function wake.first(base, now)
  local from = as_text.us(now - wake.DEAD_US)
  local first = redis.call('ZRANGEBYSCORE', base .. 'meta:sleepers', from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return first[1], tonumber(first[2] or nil)
end

-- The message names one worker: the others sleep on. at: when it has to ask, µs; if that is later than now, it learns
-- the time by asking
function wake.call(base, worker, at)
  redis.call('ZADD', base .. 'meta:sleepers', as_text.us(at), worker)
  redis.call('PUBLISH', base .. 'meta:wake', worker)
end

-- The same, for now, instead of a worker that waits for the marker.
function wake.call_alone(base, worker, now)
  wake.call(base, worker, now)
  redis.call('ZREM', base .. 'marker', '0')
end

-- A job may start at `at` (µs, default: now): a sleeper asks at once, unless one does by then. Returns whether there is
-- one.
function wake.sleeper(base, at)
  local now = redis_now()
  local first, asks = wake.first(base, now)
  if first and asks > math.max(now, at or 0) then wake.call_alone(base, first, now) end
  return first ~= nil
end

-- One worker asks at once: a sleeper or, if there is none, one that waits for the marker.
function wake.one(base)
  if not wake.sleeper(base) then redis.call('ZADD', base .. 'marker', 0, '0') end
end

-- Whether a job waits.
function wake.waits(base)
  return redis.call('LLEN', base .. 'wait') > 0 or redis.call('ZCARD', base .. 'prioritized') > 0
end

-- When the first delayed job is due, ms; nil if there is none. BullMQ's score of a delayed job is its time in ms * 4096
-- + a counter.
function wake.first_due(base)
  local score = redis.call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')[2]
  return score and tonumber(score) / 4096
end

-- If a job waits, one worker that waits for the marker asks at once. Returns whether a job waits.
function wake.marked(base)
  if not wake.waits(base) then return false end
  if redis.call('HEXISTS', base .. 'meta', 'paused') == 0 then redis.call('ZADD', base .. 'marker', 0, '0') end
  return true
end

-- One of the workers that wait for the marker asks when the next delayed job is due.
function wake.when_due(base)
  local due = wake.first_due(base)
  if due then redis.call('ZADD', base .. 'marker', math.floor(due), '1') end
end

-- The first place of the global concurrency is free again. While all are taken, BullMQ's scripts set no marker, and do
-- not report when the next delayed job is due: workers that asked meanwhile know of neither.
function wake.place(base)
  if not wake.marked(base) then wake.when_due(base) end
end

-- The first sleeper waits for this job at the head, since the sleepers' times were last set. costs: in other units;
-- nil, like cost, if only groups hold the jobs. held: with groups, the head that may not depart, {group, id}; the job
-- may be one that it lets pass
function wake.sleep_for(base, id, cost, costs, held)
  local text = cost and cjson.encode({ id or '', cost, costs or {}, held and held.group, held and held.id }) or ''
  redis.call('HSET', base .. 'meta:meter', 'sleptFor', text)
end

-- Whether a job may go sooner than another one would at the same place: it takes less of something.
function wake.takes_less(cost, costs, than)
  if cost < than[2] then return true end
  for unit, units in pairs(than[3]) do if (costs and costs[unit] or 1) < units then return true end end
  for unit, units in pairs(costs or {}) do if units < (than[3][unit] or 1) then return true end end
  return false
end

-- The first jobs in BullMQ's order, except jobs of groups. f: groups and priorityAgeingMs of the shape. With ageing, a
-- new job is next only if it is one of both.
function wake.heads(base, f)
  local heads = { redis.call('LINDEX', base .. 'wait', -1) or nil }
  if heads[1] and not f[2] then return heads end
  local from = f[1] and '4294967296' or '-inf'
  heads[#heads + 1] = redis.call('ZRANGEBYSCORE', base .. 'prioritized', from, '+inf', 'LIMIT', 0, 1)[1]
  return heads
end

-- Whether the head that the sleepers wait for is gone, or its group no longer has its turn. The next job is then
-- unknown.
function wake.is_gone(base, than, f)
  local group, id = than[4], than[5]
  if not f[1] or not group then
    return (f[1] or f[2]) and than[1] ~= '' and redis.call('EXISTS', base .. than[1]) == 0
  end
  return redis.call('EXISTS', base .. id) == 0 or not redis.call('ZSCORE', base .. 'meta:groups:ready', group)
end

-- While only groups hold the jobs: whether the first job without a group is another one than their group is held for.
function wake.plain_may_go(base, heads)
  if not heads[1] then return false end
  local held = redis.call('HMGET', base .. 'meta:groups', 'plain', 'none-limited')
  local is_held = held[1] and not held[2] and redis.call('ZSCORE', base .. 'meta:groups:limited', '')
  for _, id in ipairs(heads) do if not is_held or id ~= held[1] then return true end end
  return false
end

-- Another job may be next than the one that the sleepers wait for: one of them asks at once if it may go sooner. g: the
-- groups that this script has changed (groups/queue-groups), once they are stored
function wake.head_changed(base, g)
  -- No group was ready: workers may wait for the marker, too.
  if g and g.awaited then return wake.one(base) end
  local now = redis_now()
  local first, asks = wake.first(base, now)
  if not first or asks <= now then return end
  local text = redis.call('HGET', base .. 'meta:meter', 'sleptFor')
  if not text then return end
  local f = redis.call('HMGET', base .. 'meta:shape', 'groups', 'priorityAgeingMs')
  local heads, than = wake.heads(base, f), text ~= '' and cjson.decode(text)
  local function may_go(id)
    if not than then return true end
    local cost, deferred, costs = job_options.cost_of_job(base .. id)
    return deferred or wake.takes_less(cost, costs, than)
  end
  local sooner
  if than then sooner = wake.is_gone(base, than, f) else sooner = wake.plain_may_go(base, heads) end
  for _, id in ipairs(than and heads or {}) do sooner = sooner or may_go(id) end
  if sooner or (g and g:any_front(f[2], may_go)) then wake.call_alone(base, first, now) end
end

-- A delayed job may be due before any sleeper asks.
function wake.delayed(base)
  local due = wake.first_due(base)
  if due then wake.sleeper(base, due * 1000) end
end

-- Queues with jobs that began to wait, left or were delayed, by their key prefixes, for scripts that do not check by
-- themselves whether that wakes a worker: src/redis/bullmq-scripts.ts calls this where BullMQ's scripts release
-- parents. At its end, such a script wakes the workers.
function wake.note(base)
  call_state.touched = call_state.touched or {}
  call_state.touched[base] = true
end

-- Wakes a worker of each such queue whose next job may go, or whose next delayed job is due, sooner than they know.
function wake.touched()
  if not call_state.touched then return end
  for base in pairs(call_state.touched) do
    wake.head_changed(base)
    wake.delayed(base)
  end
  call_state.touched = false
end

-- After jobs were added to a queue, and its groups, if it has any, are stored.
function wake.by_adds(base, shape, groups)
  if not shape or not (shape.interval or shape.limits or shape.groups) then return end
  -- Most often no worker sleeps.
  if not (groups and groups.awaited) and redis.call('EXISTS', base .. 'meta:sleepers') == 0 then return end
  wake.head_changed(base, groups)
  wake.delayed(base)
end

return wake
