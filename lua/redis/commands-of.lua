-- The commands of a `redis`, by name: `commands.HSET('HSET', key, ...)`. BullMQ's scripts call them like this
-- (src/redis/bullmq-scripts.ts), so a command without a hook needs no function in between.
local known_call, known

local function commands_of(redis)
  if redis.commands then return redis.commands end
  local call = redis.call
  if call ~= known_call then
    known_call, known = call, setmetatable({}, {
      __index = function(all, command)
        all[command] = call
        return call
      end,
    })
  end
  return known
end

return commands_of
