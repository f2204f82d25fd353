--- @include "clock"
--- @include "text"

-- The only way in which a script tells workers that a job may start sooner than they know. A worker sleeps until a time
-- of its own (meta:sleepers, worker id -> µs: lib/sleepers) while something holds the head of the queue, or waits for
-- BullMQ's marker while nothing waits, the queue is paused, or every place of its concurrency is taken. One of them is
-- told: it takes what it can, and hands on the rest (lib/departure).
-- One table: a script has no room for more than 200 local names.
local wake = {}

-- A worker that was to ask longer ago than this, µs, is dead.
wake.DEAD_US = 50000

-- The sleeper that asks first, and when, µs; nil if none sleeps.
function wake.first(base, now)
  local from = us_text(now - wake.DEAD_US)
  local first = redis.call('ZRANGEBYSCORE', base .. 'meta:sleepers', from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return first[1], tonumber(first[2] or nil)
end

-- The message names one worker: the others sleep on. at: when it is to ask, µs; if that is later than now, it finds out
-- by asking
function wake.call(base, worker, at)
  redis.call('ZADD', base .. 'meta:sleepers', us_text(at), worker)
  redis.call('PUBLISH', base .. 'meta:wake', worker)
end

-- A job may start at `at` (µs; now if it is left out): a sleeper asks at once, unless one does by then. Returns whether
-- there is one.
function wake.sleeper(base, at)
  local now = redis_now()
  local first, asks = wake.first(base, now)
  if first and asks > math.max(now, at or 0) then wake.call(base, first, now) end
  return first ~= nil
end

-- One worker asks at once: a sleeper or, if there is none, one that waits for the marker.
function wake.one(base)
  if not wake.sleeper(base) then redis.call('ZADD', base .. 'marker', 0, '0') end
end

-- One worker that waits for the marker asks at once, if a job waits. Returns whether one does.
function wake.marked(base)
  if redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized') == 0 then return false end
  if redis.call('HEXISTS', base .. 'meta', 'paused') == 0 then redis.call('ZADD', base .. 'marker', 0, '0') end
  return true
end

-- One of the workers that wait for the marker asks when the next delayed job is due.
function wake.when_due(base)
  local first = redis.call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')
  -- BullMQ's score of a delayed job is its time in ms * 4096 + a counter.
  if first[1] then redis.call('ZADD', base .. 'marker', math.floor(tonumber(first[2]) / 4096), '1') end
end

-- A place of the global concurrency is free, and none was. While all are taken, BullMQ's scripts set no marker, and do
-- not report when the next delayed job is due: workers that asked meanwhile know of neither.
function wake.place(base)
  if not wake.marked(base) then wake.when_due(base) end
end

-- A delayed job may be due before any sleeper asks.
function wake.delayed(base)
  local first = redis.call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')
  if first[1] then wake.sleeper(base, tonumber(first[2]) / 4.096) end
end
