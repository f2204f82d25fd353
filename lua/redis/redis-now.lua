-- Redis's clock in microseconds. Read it once per script: TIME advances while a script runs (Redis 7.0).
local function redis_now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

return redis_now
