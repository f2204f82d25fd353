-- BullMQ's moveToFinished for ends/ends, where all of its commands go to Redis.
local function end_plain(redis)
  --- @original moveToFinished functions
  return function(KEYS, ARGV)
    --- @original moveToFinished rest
  end
end

return end_plain
