--- @include "group-hooks"

-- As groups_redis, for BullMQ's cleanJobsInSet, which takes jobs out of a list or set by one command for many, after it
-- has deleted them: their groups have to be looked up before. state: the name of that list or set
local function groups_clean_redis(redis, base, state)
  redis = groups_redis(redis)
  if state ~= 'prioritized' and state ~= 'active' and state ~= 'delayed' then return redis end
  if redis.call('HEXISTS', base .. 'meta:shape', 'groups') == 0 then return redis end
  local g, call = groups_library().bare(base), redis.call
  local function note(id)
    if state == 'active' then return g:left(id) end
    if state == 'delayed' then return g:note_later(id, 'remove') end
    local group = g.of_job(base, id)
    if group then g:remove(group, id) end
  end
  return hooked_redis(redis, {
    DEL = function(command, key, logs, ...)
      if logs == key .. ':logs' and string.sub(key, 1, #base) == base then note(string.sub(key, #base + 1)) end
      return call(command, key, logs, ...)
    end,
    -- BullMQ reports at the end.
    XADD = function(...)
      g:save()
      if g.awaited then wake.one(base) end
      return call(...)
    end,
  })
end
