local call_state = use 'redis/call-state'
local redis_now = use 'redis/redis-now'

-- Replaces "now" where BullMQ's scripts begin or end a delay: Redis's time in a queue with a shape, since the clocks of
-- clients differ. In other queues the client's time, as in BullMQ: its own workers use nothing else. ms
-- src/redis/bullmq-scripts.ts puts these calls into the scripts.
local delay_clock = {}

-- What is known of a queue in this call, by the key of its delayed set:
--   looked_up, shaped   whether it has a shape
--   waits    whether no other job is due in this call
--   empty    whether the set was empty when the script of BullMQ that runs looked
local function known_of(delayed_key)
  local known = call_state.delays[delayed_key]
  if not known then
    known = { looked_up = false, shaped = false, waits = false, empty = false }
    call_state.delays[delayed_key] = known
  end
  return known
end

-- For a script that has read both: whether the queue has a shape, and Redis's time (µs, or false).
function delay_clock.knows(base, shaped, now)
  local known = known_of(base .. 'delayed')
  known.looked_up, known.shaped, call_state.now = true, shaped, now
end

-- round: math.floor for the time up to which delayed jobs are due; math.ceil for the time from which a delay counts, so
-- that no job is due early
function delay_clock.at(round, delayed_key, client_ms)
  local known = known_of(delayed_key)
  if not known.looked_up then
    known.looked_up = true
    -- '…:delayed'
    known.shaped = redis.call('HEXISTS', string.sub(delayed_key, 1, -8) .. 'meta:shape', 'born') == 1
  end
  if not known.shaped then return tonumber(client_ms) end
  call_state.now = call_state.now or redis_now()
  return round(call_state.now / 1000)
end

-- The delayed jobs that are due, where BullMQ's scripts look for them. In most queues none is: that takes less than Redis's
-- time and a range.
function delay_clock.due(delayed_key, client_ms)
  local known = known_of(delayed_key)
  known.empty = false
  if known.waits then return {} end
  local first = redis.call('ZRANGE', delayed_key, '0', '0', 'WITHSCORES')[2]
  if first then
    local to = (delay_clock.at(math.floor, delayed_key, client_ms) + 1) * 0x1000 - 1
    if tonumber(first) <= to then return redis.call('ZRANGEBYSCORE', delayed_key, '0', to, 'LIMIT', '0', '1000') end
  end
  known.waits, known.empty = known.shaped, not first
  return {}
end

-- Whether a set was found to be empty by the script of BullMQ that runs.
function delay_clock.is_empty(delayed_key) return known_of(delayed_key).empty end

return delay_clock
