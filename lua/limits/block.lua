local queue_places = use 'limits/queue-places'
local limit_switch = use 'limits/switch'
local as_text = use 'redis/as-text'

-- Keys of a limit that may not be used for a while, whatever their states: a sorted set, state key -> end (µs).

-- Blocks a key until `at` (µs), or lifts its block if `at` is nil. A block is never shortened. Returns the end of its
-- block, 0 if there is none.
local function limit_block(control, state, now, at)
  local blocks = control .. ':blocks'
  redis.call('ZREMRANGEBYSCORE', blocks, '-inf', as_text.us(now))
  if at then redis.call('ZADD', blocks, 'GT', as_text.us(at), state) else redis.call('ZREM', blocks, state) end
  local last = redis.call('ZRANGE', blocks, -1, -1, 'WITHSCORES')[2]
  limit_switch.write(control, { blocked_until = tonumber(last) or 0 })
  queue_places.call_others(control, '')
  if last then redis.call('PEXPIRE', blocks, math.ceil((last - now) / 1000) + 1000) end
  return tonumber(redis.call('ZSCORE', blocks, state) or 0)
end

return limit_block
