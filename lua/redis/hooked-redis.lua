local commands_of = use 'redis/commands-of'

-- Replaces `redis` for a script: some of its commands go to handlers, all others to the `redis` behind it.
local function hooked_redis(redis, handlers)
  setmetatable(handlers, { __index = commands_of(redis) })
  return setmetatable({
    commands = handlers,
    call = function(command, ...) return handlers[command](command, ...) end,
  }, { __index = redis })
end

return hooked_redis
