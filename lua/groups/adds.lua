local hooked_redis = use 'redis/hooked-redis'

-- How the jobs that BullMQ's add scripts add get into their groups.
local group_adds = {}

-- Handlers for BullMQ's add scripts (redis/hooked-redis). While all groups are held, a job of theirs wakes no worker: those
-- that sleep until the first slot would look for nothing. once: handlers for a call that adds many jobs (ends/batch-once),
-- or nil
function group_adds.handlers(g, once)
  local handlers, marker = g:handle_deletions({}, redis), g.base .. 'marker'
  local add, marked = handlers.ZADD, false
  if once then handlers.HMGET, handlers.HGET = once.HMGET, once.HGET end
  function handlers.ZADD(command, key, score, id, ...)
    if key ~= marker or id ~= '0' then return add(command, key, score, id, ...) end
    if g.gathered and g.adding ~= false then
      g.marks = true
      return 0
    end
    if marked or (g.adding and not g:any({ 'ready', 'stale' })) then return 0 end
    marked = once ~= nil
    return add(command, key, score, id, ...)
  end
  return handlers
end

function group_adds.redis(g, once)
  return hooked_redis(redis, group_adds.handlers(g, once))
end

-- Stores the jobs that were gathered, and wakes a worker for them if a group of theirs may go.
function group_adds.save(g)
  g:save()
  if g.marks and g:any({ 'ready', 'stale' }) then redis.call('ZADD', g.base .. 'marker', 0, '0') end
end

return group_adds
