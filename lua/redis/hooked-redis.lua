-- Replaces `redis` for a script: some of its commands go to handlers, all others to the `redis` behind it.
--   redis.handler_of  what each command goes to, for callers that know its name (the marks with `handled`)
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
    handler_of = handlers,
  }, { __index = redis })
end

return hooked_redis
