local call_state = use 'redis/call-state'

-- The running jobs by lock token; read once, for all finishes of a resent batch.
local function read_running(base)
  local by_token = {}
  for _, id in ipairs(redis.call('LRANGE', base .. 'active', 0, -1)) do
    local token = redis.call('GET', base .. id .. ':lock')
    if token then
      by_token[token] = by_token[token] or {}
      table.insert(by_token[token], id)
    end
  end
  return by_token
end

-- The job that a resent finish fetched when it was first sent and its reply was lost: the running job that has the lock
-- token of the one that ended and started when that ended. Returned as BullMQ's reply; nil if none or several match.
local function fetched_before(base, options, timestamp)
  call_state.running = call_state.running or read_running(base)
  local found
  for _, id in ipairs(call_state.running[cmsgpack.unpack(options).token] or {}) do
    if redis.call('HGET', base .. id, 'processedOn') == timestamp then
      if found then return nil end
      found = id
    end
  end
  return found and { redis.call('HGETALL', base .. found), found, 0, 0 }
end

return fetched_before
