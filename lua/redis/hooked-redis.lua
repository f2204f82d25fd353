local commands_of = use 'redis/commands-of'

-- Replaces `redis` for a script: handlers take some commands, the original `redis` all others.
local function hooked_redis(redis, handlers)
  setmetatable(handlers, { __index = commands_of(redis) })
  return setmetatable({
    commands = handlers,
    call = function(command, ...) return handlers[command](command, ...) end,
  }, { __index = redis })
end

return hooked_redis
