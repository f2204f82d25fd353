-- Replaces `redis` for a script: some of its commands go to handlers, all others to the `redis` behind it.
local function hooked_redis(redis, handlers)
  local call = redis.call
  setmetatable(handlers, {
    __index = function(all, command)
      all[command] = call
      return call
    end,
  })
  return setmetatable({
    call = function(command, ...) return handlers[command](command, ...) end,
  }, { __index = redis })
end

return hooked_redis
