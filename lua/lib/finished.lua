-- The end of a job that is not kept is remembered in a key of its own.
local function finished_key(base, id)
  return base .. 'meta:finished:' .. id
end

local function finished_remember(base, id, timestamp, memo_ms)
  redis.call('SET', finished_key(base, id), timestamp, 'PX', memo_ms)
end

-- Whether this end of the job is recorded already: the script ran, its reply was lost, the client resent it. target:
-- the set of finished jobs
local function finished_before(base, target, id, timestamp)
  if redis.call('GET', finished_key(base, id)) == timestamp then return true end
  local finished_on = redis.call('HGET', base .. id, 'finishedOn')
  return finished_on == timestamp and redis.call('ZSCORE', target, id) == timestamp
end

-- Returns BullMQ's code, corrected for a resent call, and whether the call was resent.
local function finished_code(reply, base, target, id, timestamp)
  local code = type(reply) == 'table' and 0 or reply
  if code < 0 and finished_before(base, target, id, timestamp) then return 0, true end
  return code, false
end
