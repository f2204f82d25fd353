local redis_now = use 'redis/redis-now'

--- @call
local delay_clock = {}

-- What is known already: whether a queue has a shape, by the key of its delayed set, and Redis's time, as `now`.
delay_clock.known = {}
-- The delayed sets of queues with a shape in which no other job is due in this call; and those that were empty when the
-- script that runs looked.
delay_clock.waits, delay_clock.empty = {}, {}

-- Replaces "now" where BullMQ's scripts begin or end a delay: Redis's time in a queue with a shape, since the clocks of
-- clients differ. In other queues the client's time, as in BullMQ: its own workers use nothing else. ms
-- src/redis/bullmq-scripts.ts puts these calls into the scripts. Most runs make none, so this is one function.
--   round  math.floor for the time up to which delayed jobs are due; math.ceil for the time from which a delay counts,
--          so that no job is due early
function delay_clock.at(round, delayed_key, client_ms)
  local known = delay_clock.known
  local shaped = known[delayed_key]
  if shaped == nil then
    -- '…:delayed'
    shaped = redis.call('HEXISTS', string.sub(delayed_key, 1, -8) .. 'meta:shape', 'born') == 1
    known[delayed_key] = shaped
  end
  if not shaped then return tonumber(client_ms) end
  known.now = known.now or redis_now()
  return round(known.now / 1000)
end

-- The delayed jobs that are due, where BullMQ's scripts look for them. In most queues none is: that takes less than Redis's
-- time and a range.
function delay_clock.due(delayed_key, client_ms)
  delay_clock.empty[delayed_key] = nil
  if delay_clock.waits[delayed_key] then return {} end
  local first = redis.call('ZRANGE', delayed_key, '0', '0', 'WITHSCORES')[2]
  if first then
    local to = (delay_clock.at(math.floor, delayed_key, client_ms) + 1) * 0x1000 - 1
    if tonumber(first) <= to then return redis.call('ZRANGEBYSCORE', delayed_key, '0', to, 'LIMIT', '0', '1000') end
  end
  delay_clock.waits[delayed_key], delay_clock.empty[delayed_key] = delay_clock.known[delayed_key], not first
  return {}
end

return delay_clock
