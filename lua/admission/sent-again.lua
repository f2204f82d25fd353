local finished = use 'ends/finished'

-- For calls that add jobs and may have run before, because their reply was lost. Only for jobs whose ids were made for
-- the call: with any other id, a job may be added again once an earlier one has ended.
local sent_again = {}
-- By how much the clock of the call's timestamp may be ahead of this one: on a cluster any node is asked, and after a
-- failover another one than before.
sent_again.AHEAD_MS = 1000

-- Which of these jobs exist, or have ended without being kept, as a set. Nil if Redis may have forgotten such ends.
-- sent_us: when the call was first sent, at the earliest
function sent_again.added(base, ids, sent_us, now)
  local added, absent = {}, {}
  for _, id in ipairs(ids) do
    if redis.call('EXISTS', base .. id) == 1 then added[id] = true else absent[#absent + 1] = id end
  end
  if not absent[1] then return added end
  local expires_ms = sent_us / 1000 - sent_again.AHEAD_MS + finished.LEAST_MS
  if now / 1000 > expires_ms then return nil end
  -- Jobs that ended before the call was sent have expired earlier.
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', base .. 'meta:ended', string.format('%.0f', expires_ms - 1), '+inf')) do
    for from = 1, #absent, 1000 do
      local found = redis.call('HMGET', key, unpack(absent, from, math.min(from + 999, #absent)))
      for i = 1, #found do
        if found[i] then added[absent[from + i - 1]] = true end
      end
    end
  end
  return added
end

return sent_again
