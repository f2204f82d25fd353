local wake = use 'gate/wake'
local queue_groups = use 'groups/queue-groups'
local shapes = use 'shape/shapes'

-- Gives running jobs back to the head of their queue, as if they had never started.

local put_back = {}

-- A probe (gate/gates) that goes back has no outcome: the next job becomes the probe. The other workers sleep until the
-- timeout of this one.
function put_back.probe(base, id)
  local key = base .. 'meta:shape'
  local state, patience_ms, probe = string.match(redis.call('HGET', key, 'probe') or '', '^(%a+) %d+ (%d+) (.*)$')
  if probe ~= id then return end
  redis.call('HSET', key, 'probe', (state == 'sought' and 'seek ' or 'armed ') .. patience_ms)
  shapes.revise(key, 0)
  wake.sleeper(base)
end

-- score: of a prioritized job, or ''; second: whether another job of the wait list goes before it. False if the
-- caller's lock token no longer owns the job.
function put_back.job(base, id, token, score, second)
  local job_key = base .. id
  if redis.call('GET', job_key .. ':lock') ~= token then return false end
  if redis.call('LREM', base .. 'active', -1, id) == 0 then return false end
  redis.call('DEL', job_key .. ':lock')
  redis.call('SREM', base .. 'stalled', id)
  redis.call('HINCRBY', job_key, 'ats', -1)
  redis.call('HDEL', job_key, 'processedOn', 'departure', 'charged', 'pb')
  put_back.probe(base, id)
  if score ~= '' and tonumber(score) < 4294967296 then
    -- A job of a group.
    local g = queue_groups.bare(base, shapes.read(base .. 'meta:shape'))
    g:back_in(id, score)
    g:save()
  elseif score ~= '' then
    redis.call('ZADD', base .. 'prioritized', score, id)
  else
    local head = second and redis.call('RPOP', base .. 'wait')
    redis.call('RPUSH', base .. 'wait', id)
    if head then redis.call('RPUSH', base .. 'wait', head) end
  end
  redis.call('XADD', base .. 'events', '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
  return true
end

return put_back
