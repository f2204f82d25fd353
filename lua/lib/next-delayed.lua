-- BullMQ's marker for the next delayed job: one of the workers waiting for a marker takes it, and asks when the job is
-- due.
local function next_delayed_mark(base)
  local first = redis.call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')
  -- BullMQ's score of a delayed job is its time in ms * 4096 + a counter.
  if first[1] then redis.call('ZADD', base .. 'marker', math.floor(tonumber(first[2]) / 4096), '1') end
end
