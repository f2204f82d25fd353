--[[
  Records a change that BullMQ made, or that consists of many calls, in the history of the queue.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  kind: pause, resume, redrive or job
    [2]  who
    [3]  why
    [4]  JSON: what was changed
  Returns 1.
]]
--- @include "lib/clock"
--- @include "lib/history"
history.note(string.sub(KEYS[1], 1, -11), redis_now(), ARGV[1], ARGV[2], ARGV[3], ARGV[4], '')
return 1
