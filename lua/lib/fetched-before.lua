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

-- What an end fetched by BullMQ's script when it was first sent, its reply having been lost: the running job with the
-- lock token of the one that ended, and that began when that ended. Nil if that is ambiguous.
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
