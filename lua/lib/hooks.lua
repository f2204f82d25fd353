-- Replaces `redis` for a script: some of its commands go to handlers, all others to the `redis` behind it.
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
