-- The lock of a job that has run may be over because Redis was away for longer, or renewed none: as long as the job is still
-- active and nobody else has locked it, its worker has not lost it, and its end counts. Returns whether it is locked again.
local function relock(base, id, token)
  if redis.call('EXISTS', base .. id .. ':lock') == 1 or not redis.call('LPOS', base .. 'active', id) then return false end
  redis.call('SET', base .. id .. ':lock', token, 'PX', 1000)
  return true
end
