--- @call
-- The running jobs by lock token; read once, for all finishes of a resent batch.
local running_by_token

local function read_running(base)
  running_by_token = {}
  for _, id in ipairs(redis.call('LRANGE', base .. 'active', 0, -1)) do
    local token = redis.call('GET', base .. id .. ':lock')
    if token then
      running_by_token[token] = running_by_token[token] or {}
      table.insert(running_by_token[token], id)
    end
  end
end

-- The job that a resent finish fetched when it was first sent and its reply was lost: the running job that has the lock
-- token of the one that ended and started when that ended. Returned as BullMQ's reply; nil if none or several match.
local function fetched_before(base, options, timestamp)
  if not running_by_token then read_running(base) end
  local found
  for _, id in ipairs(running_by_token[cmsgpack.unpack(options).token] or {}) do
    if redis.call('HGET', base .. id, 'processedOn') == timestamp then
      if found then return nil end
      found = id
    end
  end
  return found and { redis.call('HGETALL', base .. found), found, 0, 0 }
end

return fetched_before
