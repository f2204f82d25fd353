--- @include "clock"

-- Replaces "now" where BullMQ's scripts begin or end a delay: Redis's time in a queue with a shape, since the clocks of
-- clients differ. In other queues the client's time, as in BullMQ: its own workers use nothing else.
-- src/redis/bullmq-scripts.ts puts these calls into the scripts.
--   delay_clock.shaped  whether a queue has a shape, by the key of its delayed set
local delay_clock = { shaped = {} }

function delay_clock.read(delayed_key)
  local shaped = delay_clock.shaped[delayed_key]
  if shaped == nil then
    -- '…:delayed'
    shaped = redis.call('HEXISTS', string.sub(delayed_key, 1, -8) .. 'meta:shape', 'born') == 1
    delay_clock.shaped[delayed_key] = shaped
  end
  if shaped and not delay_clock.now then delay_clock.now = redis_now() end
  return shaped and delay_clock.now / 1000
end

-- Time up to which delayed jobs are due, ms.
function delay_clock.due(delayed_key, client_ms)
  local now = delay_clock.read(delayed_key)
  return now and math.floor(now) or tonumber(client_ms)
end

-- Time from which a delay counts, ms: rounded up, so that no job is due early.
function delay_clock.start(delayed_key, client_ms)
  local now = delay_clock.read(delayed_key)
  return now and math.ceil(now) or tonumber(client_ms)
end
