-- Redis's clock went back: keys would expire that much later. The locks of a dead worker would keep its jobs in
-- `active` for that long, unnoticed. A lock renewed since looks like any other, so none is cut below what its worker sets,
-- lock_ms.
local LOCK_MS = 30000

local function locks_follow_step(base, step_us, lock_ms)
  local step_ms = math.floor(step_us / 1000)
  redis.call('DEL', base .. 'stalled-check')
  for _, id in ipairs(redis.call('LRANGE', base .. 'active', 0, -1)) do
    local key = base .. id .. ':lock'
    local left_ms = redis.call('PTTL', key)
    local kept_ms = math.max(left_ms - step_ms, math.min(left_ms, lock_ms or LOCK_MS))
    if left_ms > kept_ms then redis.call('PEXPIRE', key, kept_ms) end
  end
end

return locks_follow_step
