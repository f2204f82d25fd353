-- What a text sees as `redis`: some of its commands go to handlers, the others to the one that it is put before.
local function hooked_redis(redis, handlers)
  local call = redis.call
  return setmetatable({
    call = function(command, ...)
      local handler = handlers[command]
      if handler then return handler(command, ...) end
      return call(command, ...)
    end,
  }, { __index = redis })
end
