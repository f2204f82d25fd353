--[[
  Records a change that BullMQ made, or that consists of many calls, in the history of the queue.
  ARGV
    [1]  kind: pause, resume, redrive or job
    [2]  who
    [3]  why
    [4]  JSON: the change
    [5]  when the call was first sent, µs, if it may have run already
  Returns 1.
]]
local redis_now = use 'redis/redis-now'
local history = use 'reports/history'

local base = string.sub(KEYS[1], 1, -11)
if history.made(base, ARGV[5], ARGV[1], ARGV[2], ARGV[3], ARGV[4], '') then return 1 end
history.note(base, redis_now(), ARGV[1], ARGV[2], ARGV[3], ARGV[4], '')
return 1
