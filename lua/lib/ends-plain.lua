--- @include "batch-ends"

-- BullMQ's moveToFinished for lib/batch-ends, where all of its commands go to Redis.
function ends.script(redis)
  --- @original moveToFinished functions
  return function(KEYS, ARGV)
    --- @original moveToFinished rest
  end
end
