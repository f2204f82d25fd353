local redis_now = use 'redis/redis-now'

--- @call
local delay_clock = {}

-- What is known already: whether a queue has a shape, by the key of its delayed set, and Redis's time, as `now`.
delay_clock.known = {}

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

return delay_clock
