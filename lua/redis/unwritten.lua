-- Runs a function whose writes stay in memory. A view thus uses the same modules as the next writing script, and shows
-- what that will find after an override expires or a limit changes.
local function unwritten(run)
  local real, call, hashes, texts, handlers = redis, redis.call, {}, {}, {}

  local function text(value)
    return type(value) == 'number' and string.format('%.17g', value) or value
  end

  -- A copy of a hash that is about to change.
  local function copied(key)
    if hashes[key] then return hashes[key] end
    local flat, fields = call('HGETALL', key), {}
    for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
    hashes[key] = fields
    return fields
  end

  function handlers.HSET(key, ...)
    local fields, args = copied(key), { ... }
    for i = 1, #args, 2 do fields[args[i]] = text(args[i + 1]) end
    return #args / 2
  end

  function handlers.HDEL(key, ...)
    local fields = copied(key)
    for _, field in ipairs({ ... }) do fields[field] = nil end
    return 0
  end

  function handlers.HINCRBY(key, field, by)
    local fields = copied(key)
    fields[field] = text((tonumber(fields[field]) or 0) + by)
    return tonumber(fields[field])
  end

  function handlers.HGET(key, field)
    local fields = hashes[key]
    if not fields then return call('HGET', key, field) end
    return fields[field] or false
  end

  function handlers.HMGET(key, ...)
    local fields = hashes[key]
    if not fields then return call('HMGET', key, ...) end
    local values = { ... }
    for i, field in ipairs(values) do values[i] = fields[field] or false end
    return values
  end

  function handlers.HGETALL(key)
    if not hashes[key] then return call('HGETALL', key) end
    local flat = {}
    for field, value in pairs(hashes[key]) do flat[#flat + 1], flat[#flat + 2] = field, value end
    return flat
  end

  function handlers.PSETEX(key, _, value)
    texts[key] = value
  end

  function handlers.GET(key)
    return texts[key] or call('GET', key)
  end

  function handlers.MGET(...)
    local values = call('MGET', ...)
    for i, key in ipairs({ ... }) do values[i] = texts[key] or values[i] end
    return values
  end

  -- Views do not read the effects of these.
  local function nothing() return 0 end
  for _, name in ipairs({ 'PUBLISH', 'ZADD', 'ZREM', 'UNLINK', 'PEXPIRE' }) do handlers[name] = nothing end

  redis = setmetatable({
    call = function(command, ...)
      local handler = handlers[command]
      if handler then return handler(...) end
      return call(command, ...)
    end,
  }, { __index = real })
  local ok, reply = pcall(run)
  redis = real
  if not ok then error(reply, 0) end
  return reply
end

return unwritten
