local hooked_redis = use 'redis/hooked-redis'

-- Virtual time: replaces `redis` in a simulation. Its clock is `virtual.now` (µs), no messages are published, started
-- jobs are counted but not listed, and every key expires by itself: an aborted simulation leaves nothing. It has to be
-- the first module used.
--   virtual.hashes   hashes that are kept in memory while a script runs, by their keys: field -> text
--   virtual.settle   called before one of them is read: brings it up to date
local virtual = { now = 0, ttl_ms = 0, hashes = {}, settle = function() end, call = redis.call }

-- Redis's own time, µs.
function virtual.real_time()
  local time = virtual.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The commands of a hash that is kept in memory.
local function virtual_hash_handlers(call, handlers)
  local function text(value)
    return type(value) == 'number' and string.format('%.17g', value) or value
  end
  function handlers.HMGET(command, key, ...)
    local hash = virtual.hashes[key]
    if not hash then return call(command, key, ...) end
    virtual.settle()
    local values = { ... }
    for i, field in ipairs(values) do values[i] = hash[field] or false end
    return values
  end
  function handlers.HSET(command, key, ...)
    local hash = virtual.hashes[key]
    if not hash then return call(command, key, ...) end
    local args = { ... }
    for i = 1, #args, 2 do hash[args[i]] = text(args[i + 1]) end
    return #args / 2
  end
  function handlers.HINCRBY(command, key, field, by)
    local hash = virtual.hashes[key]
    if not hash then return call(command, key, field, by) end
    local sum = (tonumber(hash[field]) or 0) + by
    hash[field] = text(sum)
    return sum
  end
end

local function virtual_redis()
  local call, handlers = redis.call, {}
  virtual_hash_handlers(call, handlers)
  function handlers.TIME()
    return { math.floor(virtual.now / 1000000), virtual.now % 1000000 }
  end
  function handlers.INFO()
    return 'run_id:0'
  end
  function handlers.PUBLISH()
    return 0
  end
  function handlers.XADD()
    return false
  end
  -- Virtual time may pass more slowly than the time by which Redis expires keys.
  function handlers.PSETEX(_, key, _, value)
    return call('SET', key, value, 'PX', virtual.ttl_ms)
  end
  function handlers.PEXPIRE(_, key)
    return call('PEXPIRE', key, virtual.ttl_ms)
  end
  local popped
  function handlers.RPOPLPUSH(_, source)
    popped = call('RPOP', source)
    return popped
  end
  -- A job that may not depart goes back to its place (gate/gates).
  function handlers.LMOVE(_, _, target)
    call('RPUSH', target, popped)
    return popped
  end
  return hooked_redis(redis, handlers)
end

redis = virtual_redis()

-- Keeps a hash in memory from now on.
function virtual.keep(key)
  local flat, hash = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do hash[flat[i]] = flat[i + 1] end
  virtual.hashes[key] = hash
end

-- Stores the kept hashes, and sets the TTL of the given keys.
function virtual.store(keys)
  virtual.settle()
  for key, hash in pairs(virtual.hashes) do
    virtual.hashes[key] = nil
    for field, value in pairs(hash) do redis.call('HSET', key, field, value) end
    redis.call('PEXPIRE', key)
  end
  for _, key in ipairs(keys) do redis.call('PEXPIRE', key) end
end

return virtual
