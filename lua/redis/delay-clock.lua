local call_state = use 'redis/call-state'
local redis_now = use 'redis/redis-now'

-- Replaces "now" where BullMQ's scripts begin or end a delay: Redis's time in a queue with a shape, since the clocks of
-- clients differ. In other queues the client's time, as in BullMQ: its own workers use nothing else. ms
-- src/redis/bullmq-scripts.ts puts these calls into the scripts.
local delay_clock = {}

-- For a script that has read both: whether its queue has a shape, and Redis's time (µs, or false).
function delay_clock.knows(base, shaped, now)
  call_state.base, call_state.shaped, call_state.now = base, shaped, now
end

-- round: math.floor for the time up to which delayed jobs are due; math.ceil for the time from which a delay counts, so
-- that no job is due early
function delay_clock.at(round, delayed_key, client_ms)
  -- '…:delayed'; most scripts are about one queue.
  local base = string.sub(delayed_key, 1, -8)
  if base ~= call_state.base then
    call_state.base, call_state.shaped = base, redis.call('HEXISTS', base .. 'meta:shape', 'born') == 1
  end
  if not call_state.shaped then return tonumber(client_ms) end
  call_state.now = call_state.now or redis_now()
  return round(call_state.now / 1000)
end

-- The delayed jobs that are due, where BullMQ's scripts look for them. In most queues none is: that takes less than Redis's
-- time and a range.
function delay_clock.due(delayed_key, client_ms)
  call_state.empty = false
  if call_state.waits == delayed_key then return {} end
  local first = redis.call('ZRANGE', delayed_key, '0', '0', 'WITHSCORES')[2]
  if first then
    local to = (delay_clock.at(math.floor, delayed_key, client_ms) + 1) * 0x1000 - 1
    if tonumber(first) <= to then return redis.call('ZRANGEBYSCORE', delayed_key, '0', to, 'LIMIT', '0', '1000') end
  end
  -- By the clock of the client, another one may be due when the next script of BullMQ runs.
  if call_state.shaped and call_state.base .. 'delayed' == delayed_key then call_state.waits = delayed_key end
  if not first then call_state.empty = delayed_key end
  return {}
end

-- Whether a set was found to be empty by the script of BullMQ that runs.
function delay_clock.is_empty(delayed_key) return call_state.empty == delayed_key end

return delay_clock
