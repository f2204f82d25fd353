-- What a text of BullMQ sees as `redis`: some of its commands go to handlers, the others to Redis.
local function hooked_redis(handlers)
  local call = redis.call
  return setmetatable({
    call = function(command, ...)
      local handler = handlers[command]
      if handler then return handler(command, ...) end
      return call(command, ...)
    end,
  }, { __index = redis })
end
