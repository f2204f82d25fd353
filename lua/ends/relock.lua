-- The lock of a finished job may have expired because Redis was away for too long, or did not renew it: as long as the
-- job is still active and not locked by another worker, its worker has not lost it, and its end counts. Returns whether
-- it is locked again. BullMQ's own worker on a queue without a shape gets BullMQ's reply instead.
local function relock(base, id, token)
  if redis.call('EXISTS', base .. id .. ':lock') == 1 or not redis.call('LPOS', base .. 'active', id) then return false end
  redis.call('SET', base .. id .. ':lock', token, 'PX', 1000)
  return true
end

return relock
