--- @include "batch-ends"
--- @include "hooks"

-- BullMQ's moveToFinished for lib/batch-ends, where many of its commands go to handlers.
function ends.script(redis)
  local handler_of = redis.handler_of or hooked_redis(redis, {}).handler_of
  --- @original moveToFinished functions handled
  return function(KEYS, ARGV)
    --- @original moveToFinished rest handled
  end
end
