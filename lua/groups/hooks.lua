local queued_at_redis = use 'gate/queued-at-redis'
local wake = use 'gate/wake'
local queue_groups = use 'groups/queue-groups'
local hooked_redis = use 'redis/hooked-redis'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local group_hooks = {}

-- Stores changes of groups, and wakes a worker if another job may go now.
function group_hooks.store(g)
  g:save()
  if g.awaited or g.fronts then wake.head_changed(g.base, g) end
end

-- The `redis` for scripts of BullMQ that put jobs where they wait, take them from there or from the running ones, or
-- delete them. In a queue with groups, jobs enter and leave their lines, and their places become free; where jobs age,
-- the beginning of their wait is recorded. Second, a function for the end of the script, which stores changes, and
-- wakes a worker if the next job is another one. Other queues pay one command. known: base -> {whether the queue has
-- groups, whether its jobs age, whether its groups have lanes, or strict order; opened: its groups if they are: then
-- the caller stores them}, for queues whose shape was read
function group_hooks.redis(redis, known)
  local call, opened = redis.call, {}
  known = known or {}
  -- The `redis` for the commands of a queue.
  local function target_of(base)
    local of = known[base] or call('HMGET', base .. 'meta:shape', 'groups', 'priorityAgeingMs', 'lanes', 'wholeGroups')
    known[base] = of
    if of.target then return of.target end
    local g, target = of.opened, redis
    if of[1] and not g then
      g = queue_groups.bare(base, (of[3] or of[4]) and shapes.read(base .. 'meta:shape'))
      opened[#opened + 1] = g
    end
    if g then target = hooked_redis(redis, g:handle_deletions({}, redis)) end
    if of[2] then target = queued_at_redis(target, base, redis_now()) end
    of.target = target
    return target
  end
  local function of(lists)
    return function(command, key, ...)
      local base, list = string.match(key, '^(.*:)([^:]+)$')
      if list ~= 'active' and list ~= 'waiting-children' then wake.note(base) end
      if not lists[list] then return call(command, key, ...) end
      return target_of(base).call(command, key, ...)
    end
  end
  local push, later = of({ wait = true }), { delayed = true, ['waiting-children'] = true }
  local hooked = hooked_redis(redis, {
    LPUSH = push, RPUSH = push, LREM = of({ active = true, wait = true }),
    ZREM = of({ prioritized = true, delayed = true, ['waiting-children'] = true }),
    -- For a queue that is unknown yet, the check would be one more command: gate/ageing-open does without.
    ZADD = function(command, key, ...)
      local base, list = string.match(key, '^(.*:)([^:]+)$')
      if list == 'prioritized' or list == 'delayed' then wake.note(base) end
      if not later[list] and not (list == 'prioritized' and known[base]) then return call(command, key, ...) end
      return target_of(base).call(command, key, ...)
    end,
    -- The ids of iterations of schedulers have colons.
    DEL = function(command, key, part, ...)
      if not part then return call(command, key) end
      return target_of(string.match(key, '^(.*:)repeat:.+:%d+$') or string.match(key, '^(.*:)')).call(command, key, part, ...)
    end,
  })
  return hooked, function()
    for _, g in ipairs(opened) do group_hooks.store(g) end
    wake.touched()
  end
end

-- Runs such a script. Returns its reply. known: as above
function group_hooks.run(script, redis, keys, args, known)
  local hooked, store = group_hooks.redis(redis, known)
  local reply = script.run(hooked, keys, args)
  store()
  return reply
end

-- For BullMQ's changePriority, in a queue with groups: the priority of a job of a group applies within the group.
-- BullMQ's script then puts the job back as one without a priority, and so into the line of its group. A job that does
-- not wait yet, or runs, gets it at its next entry. argv: BullMQ's {priority, key prefix, job id, '1' if it goes before
-- its equals}. Returns the `known` of group_hooks.redis: the beginning of the job's wait does not change.
function group_hooks.priority(argv)
  local priority, base, id = argv[1], argv[2], argv[3]
  local f = redis.call('HMGET', base .. 'meta:shape', 'groups', 'lanes', 'wholeGroups')
  local known = { [base] = { f[1], false, f[2], f[3] } }
  if not known[base][1] or not queue_groups.of_job(base, id) then return known end
  local options = cjson.decode(redis.call('HGET', base .. id, 'opts'))
  options.group.priority = tonumber(priority)
  redis.call('HSET', base .. id, 'opts', cjson.encode(options))
  argv[1] = '0'
  return known
end

-- Handlers for BullMQ's add scripts (redis/hooked-redis), which put jobs into their groups. While all groups are held,
-- their jobs wake no worker: workers that sleep until the first slot would find nothing. once: handlers for a call that
-- adds many jobs (ends/batch-once), or nil
local function add_handlers(g, once)
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

-- The `redis` for them, in a queue with groups (nil: none) or where jobs age.
function group_hooks.adding(base, shape, g, now, once)
  local hooked = g and hooked_redis(redis, add_handlers(g, once)) or redis
  return shape and shape.ageing_ms and queued_at_redis(hooked, base, now) or hooked
end

-- Stores the gathered jobs, and wakes a worker for them if one of their groups may go.
function group_hooks.save_adds(g)
  g:save()
  if g.marks and g:any({ 'ready', 'stale' }) then redis.call('ZADD', g.base .. 'marker', 0, '0') end
end

return group_hooks
