local grants = use 'gate/grants'
local call_state = use 'redis/call-state'

-- The running jobs by lock token, and those that the call was granted behind a gate; read once, for all finishes of a
-- resent batch.
local function read_running(base, call)
  local by_token, granted = {}, {}
  local memo = grants.recall(base, call)
  for _, job in ipairs(memo and memo.jobs or {}) do granted[job[1]] = true end
  for _, id in ipairs(redis.call('LRANGE', base .. 'active', 0, -1)) do
    local token = redis.call('GET', base .. id .. ':lock')
    if token then
      by_token[token] = by_token[token] or {}
      table.insert(by_token[token], id)
    end
  end
  return { by_token = by_token, granted = granted }
end

-- The job that a resent finish fetched when it was first sent and its reply was lost: the running job that has the lock
-- token of the one that ended and started when that ended, or was granted by this call (its id). Returned as BullMQ's
-- reply; nil if none or several match.
local function fetched_before(base, options, timestamp, call)
  local running = call_state.running or read_running(base, call)
  call_state.running = running
  local found
  for _, id in ipairs(running.by_token[cmsgpack.unpack(options).token] or {}) do
    if running.granted[id] or redis.call('HGET', base .. id, 'processedOn') == timestamp then
      if found then return nil end
      found = id
    end
  end
  return found and { redis.call('HGETALL', base .. found), found, 0, 0 }
end

return fetched_before
