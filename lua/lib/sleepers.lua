--- @include "text"

-- Waiting workers and their wake-up times: a sorted set, worker id -> µs. Each worker that could take more jobs gets
-- a time of its own, one horizon before the first slot that no other sleeper will ask for.

-- How many slots one call takes: those of half a horizon, so that the other half is left for a late timer.
local function sleepers_batch(horizon, step)
  if step <= 0 then return 1 end
  return math.max(1, math.floor(horizon / 2 / step))
end

-- The first batch of slots, counted from 0, that none of the given wake-up times (ascending) covers.
local function sleepers_gap(wakes, first, distance)
  local place = 0
  for i = 2, #wakes, 2 do
    if tonumber(wakes[i]) > first + (place + 0.5) * distance then break end
    place = place + 1
  end
  return place
end

-- Workers that died in their sleep keep their places: behind them nobody sleeps for longer than this past the next slot.
local LONGEST_US = 60000000

-- Puts the worker to sleep until its slots; next is the first free slot, step the µs between two, spare the
-- jobs it could take. Returns the wake-up time (µs).
local function sleepers_add(key, worker, now, horizon, next, step, spare)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', us_text(now))
  redis.call('ZREM', key, worker)
  local batch = sleepers_batch(horizon, step)
  local first = next + (math.min(spare, batch) - 1) * step - horizon
  local distance = batch * step
  local place = distance > 0 and sleepers_gap(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), first, distance) or 0
  local wake = math.max(now, math.floor(first + math.min(place * distance, LONGEST_US)))
  redis.call('ZADD', key, us_text(wake), worker)
  return wake
end

-- Moves a wake-up forward to `at` (the next delayed job is due) unless another sleeper is up by then.
local function sleepers_hasten(key, worker, wake, at)
  if at >= wake then return wake end
  local earlier = redis.call('ZRANGEBYSCORE', key, '-inf', us_text(at), 'LIMIT', 0, 1)
  if earlier[1] then return wake end
  redis.call('ZADD', key, us_text(at), worker)
  return at
end

-- Has the first sleeper ask at once: the message names it, the others sleep on.
local function sleepers_call_first(base)
  local first = redis.call('ZRANGE', base .. 'meta:sleepers', 0, 0)[1]
  if first then redis.call('PUBLISH', base .. 'meta:wake', first) end
end

-- A delayed job may be due before anybody is up who would promote it. Scores of BullMQ's delayed jobs are ms * 4096.
local function sleepers_expect_delayed(base, now)
  local first = redis.call('ZRANGEBYSCORE', base .. 'meta:sleepers', us_text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[1] then return end
  local delayed = redis.call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')
  if delayed[1] and tonumber(delayed[2]) / 4.096 < tonumber(first[2]) then
    redis.call('PUBLISH', base .. 'meta:wake', first[1])
  end
end

local function sleepers_remove(key, worker)
  redis.call('ZREM', key, worker)
end
