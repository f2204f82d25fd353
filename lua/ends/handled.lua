local hooked_redis = use 'redis/hooked-redis'

-- BullMQ's moveToFinished for ends/ends, where many of its commands go to handlers.
local function end_handled(redis)
  local handler_of = redis.handler_of or hooked_redis(redis, {}).handler_of
  --- @original moveToFinished functions handled
  return function(KEYS, ARGV)
    --- @original moveToFinished rest handled
  end
end

return end_handled
