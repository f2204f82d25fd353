local call_state = use 'redis/call-state'
local redis_now = use 'redis/redis-now'

-- Replaces "now" where BullMQ's scripts begin or end a delay. In a queue with a shape it is Redis's time, because
-- client clocks differ; in other queues it is the client's time, as in BullMQ. ms
-- src/redis/bullmq-scripts.ts inserts these calls.
local delay_clock = {}

-- For a script that already knows whether its queue has a shape, and Redis's time (µs, or false).
function delay_clock.knows(base, shaped, now)
  call_state.base, call_state.shaped, call_state.now = base, shaped, now
end

-- round: math.floor for the time up to which delayed jobs are due; math.ceil for the start of a delay, so that no job
-- is due early
function delay_clock.at(round, delayed_key, client_ms)
  -- '…:delayed'. Most scripts handle one queue.
  local base = string.sub(delayed_key, 1, -8)
  if base ~= call_state.base then
    call_state.base, call_state.shaped = base, redis.call('HEXISTS', base .. 'meta:shape', 'born') == 1
  end
  if not call_state.shaped then return tonumber(client_ms) end
  call_state.now = call_state.now or redis_now()
  return round(call_state.now / 1000)
end

-- The due delayed jobs, in place of BullMQ's own range. Most queues have none, so this first reads one score, which
-- costs less than TIME and a range.
function delay_clock.due(delayed_key, client_ms)
  call_state.empty = false
  if call_state.waits == delayed_key then return {} end
  local first = redis.call('ZRANGE', delayed_key, '0', '0', 'WITHSCORES')[2]
  if first then
    local to = (delay_clock.at(math.floor, delayed_key, client_ms) + 1) * 0x1000 - 1
    if tonumber(first) <= to then return redis.call('ZRANGEBYSCORE', delayed_key, '0', to, 'LIMIT', '0', '1000') end
  end
  -- Only for Redis's time: by the client's clock, another job may be due at the next script of BullMQ.
  if call_state.shaped and call_state.base .. 'delayed' == delayed_key then call_state.waits = delayed_key end
  if not first then call_state.empty = delayed_key end
  return {}
end

-- Whether the current script of BullMQ found the set empty.
function delay_clock.is_empty(delayed_key) return call_state.empty == delayed_key end

return delay_clock
