local new_job = use 'admission/new-job'
local occupancy = use 'admission/occupancy'
local add_standard_job = use 'bullmq/addStandardJob'
local move_to_finished = use 'bullmq/moveToFinished'
local batch_once = use 'ends/batch-once'
local group_share = use 'groups/share'
local as_text = use 'redis/as-text'
local hooked_redis = use 'redis/hooked-redis'

--- @call
-- Overflow: a full queue accepts a new job and drops a waiting one for it. The dropped job fails finally, like any job
-- of BullMQ, and is reported in an event. If shape.overflow_to names a queue, that gets a dead letter.
local overflow = {}
-- At most this many jobs that cannot be dropped are skipped.
overflow.PASSED_BY = 100
-- The options of jobs that can be dropped, by their ids.
overflow.options = {}
-- As in BullMQ: the score of a prioritized job is the priority * 2^32 + a counter.
overflow.PRIORITY_UNIT = 4294967296

-- Never dropped: jobs of flows, whose parents would wait forever or whose children would be useless; the iteration of a
-- scheduler, which creates the next one when it starts; a job that has already failed and only has to be fetched.
function overflow.droppable(base, id)
  local key = base .. id
  local f = redis.call('HMGET', key, 'name', 'parentKey', 'parent', 'rjk', 'defa', 'opts')
  if not f[1] or f[2] or f[3] or f[4] or f[5] then return false end
  -- If the options cannot be parsed, they may demand that the job is kept: it stays, and nothing is changed.
  local parsed, options = pcall(cjson.decode, f[6] or '{}')
  if not parsed then return false end
  overflow.options[id] = options
  return redis.call('EXISTS', key .. ':dependencies', key .. ':processed', key .. ':failed', key .. ':unsuccessful') == 0
end

-- The oldest jobs without a priority: the next to depart.
function overflow.oldest(base, n)
  local ids, found = redis.call('LRANGE', base .. 'wait', -n - overflow.PASSED_BY, -1), {}
  for i = #ids, 1, -1 do
    if overflow.droppable(base, ids[i]) then found[#found + 1] = ids[i] end
    if #found == n then return found end
  end
  return nil
end

-- The last prioritized jobs to depart, while accepts(priority).
function overflow.lowest(base, n, accepts)
  local last, found = redis.call('ZREVRANGE', base .. 'prioritized', 0, n + overflow.PASSED_BY - 1, 'WITHSCORES'), {}
  for i = 1, #last, 2 do
    if not accepts(math.floor(tonumber(last[i + 1]) / overflow.PRIORITY_UNIT)) then return nil end
    if overflow.droppable(base, last[i]) then found[#found + 1] = last[i] end
    if #found == n then return found end
  end
  return nil
end

function overflow.choose_plain(base, shape, jobs, n)
  local limit, least = math.huge, 0
  for _, job in ipairs(jobs) do
    local priority = job.terms.priority
    limit, least = math.min(limit, occupancy.limit(shape, priority)), math.max(least, priority)
  end
  if shape.overflow == 'drop-oldest' then
    return occupancy.limit(shape, 0) <= limit and overflow.oldest(base, n) or nil
  end
  return overflow.lowest(base, n, function(priority)
    return priority > least and occupancy.limit(shape, priority) <= limit
  end)
end

-- Up to n jobs of a group: the next to depart, or the last of those that are less important than all new ones. Jobs
-- that cannot be dropped are rarely before them: only then are more read.
function overflow.of_group(base, shape, group, jobs, n)
  local least, found, key, oldest = 0, {}, base .. 'meta:group:jobs:' .. group, shape.overflow == 'drop-oldest'
  for _, job in ipairs(jobs) do least = math.max(least, job.group and job.group[2] or job.terms.priority) end
  for _, range in ipairs({ { 0, n - 1 }, { n, n + overflow.PASSED_BY - 1 } }) do
    local ids = oldest and redis.call('ZRANGE', key, range[1], range[2], 'WITHSCORES')
      or redis.call('ZREVRANGE', key, range[1], range[2], 'WITHSCORES')
    for i = 1, #ids, 2 do
      local id, priority = ids[i], math.floor(tonumber(ids[i + 1]) / overflow.PRIORITY_UNIT)
      if not oldest and priority <= least then return found end
      if redis.call('ZSCORE', base .. 'prioritized', id) and overflow.droppable(base, id) then found[#found + 1] = id end
      if #found == n then return found end
    end
  end
  return found
end

-- With groups, new jobs replace jobs of their own groups: no tenant's job is dropped for another tenant's. Jobs without
-- a group are one group. jobs.groups: the opened groups, if a job has one. If free capacity bounds the groups
-- (groups/share), jobs.swaps says how many of each group to replace, whatever the queue lacks.
function overflow.choose_grouped(base, shape, jobs, n)
  local lists, names, found = {}, {}, { groups = jobs.groups, of = {} }
  local shares = jobs.groups and group_share.of_free(jobs.groups.given)
  for _, job in ipairs(jobs) do
    local group = job.group and job.group[1] or ''
    if not lists[group] then
      lists[group] = {}
      -- Jobs without a group come last: they replace what the others do not.
      table.insert(names, group ~= '' and 1 or #names + 1, group)
    end
    table.insert(lists[group], job)
  end
  for _, group in ipairs(names) do
    local own = lists[group]
    local most, ids = math.min(#own, n - #found), nil
    if group ~= '' or shape.lanes then
      if shares and group ~= '' then most = jobs.swaps and jobs.swaps.of[group] or 0 end
      ids = most > 0 and overflow.of_group(base, shape, group, own, most) or {}
      if shares and group ~= '' and #ids < most then return nil end
    elseif most > 0 then
      ids = overflow.choose_plain(base, shape, own, most)
    end
    for _, id in ipairs(ids or {}) do
      found[#found + 1] = id
      if group ~= '' or shape.lanes then found.of[id] = group end
    end
    if #found == n and not shares then return found end
  end
  return #found >= n and found or nil
end

-- The n jobs to drop for the new ones, or nil if there are not enough. None is dropped for a less important one, or if
-- others would then take a place reserved for its priority.
function overflow.choose(base, shape, jobs, n)
  if not shape.overflow or shape.overflow == 'reject' then return nil end
  if shape.groups then return overflow.choose_grouped(base, shape, jobs, n) end
  return overflow.choose_plain(base, shape, jobs, n)
end

-- BullMQ stores these options under short names.
overflow.OPTION_NAMES = {
  de = 'deduplication', fpof = 'failParentOnFailure', cpof = 'continueParentOnFailure',
  idof = 'ignoreDependencyOnFailure', kl = 'keepLogs', rdof = 'removeDependencyOnFailure',
}

-- Handlers (redis/hooked-redis) for BullMQ's moveToFinished, of one queue. It only ends active jobs and counts an
-- attempt, but a dropped job was not active and made none.
function overflow.handlers(base)
  local call, handlers, active = redis.call, batch_once.handlers(base), base .. 'active'
  function handlers.LREM(command, key, ...)
    return key == active and 1 or call(command, key, ...)
  end
  function handlers.HINCRBY(command, key, field, by)
    return field == 'atm' and 0 or call(command, key, field, by)
  end
  return handlers
end

-- The base of the queue of dead letters, and the arguments of the add script for a job's dead letter. Stored JSON is
-- decoded and encoded only if necessary: Lua turns an empty list into an empty object.
function overflow.dead_letter(base, to, id, options, reason, now_ms)
  local f = redis.call('HMGET', base .. id, 'name', 'data', 'opts', 'timestamp', 'atm', 'ats', 'stc', 'throttled',
    'stacktrace', 'processedOn', 'progress')
  local prefix, queue = string.match(base, '^(.*):([^:]*):$')
  local encoded = f[3]
  for short, name in pairs(overflow.OPTION_NAMES) do
    if options[short] ~= nil then
      options[name], options[short] = options[short], nil
      encoded = cjson.encode(options)
    end
  end
  local again = tonumber(options.redriven) or 0
  local dead_id = redis.sha1hex(cjson.encode({ prefix, queue, id, f[4] })) .. (again > 0 and '-' .. again or '')
  local text = cjson.encode
  local data = '{"prefix":' .. text(prefix) .. ',"queueName":' .. text(queue) .. ',"id":' .. text(id)
    .. ',"name":' .. text(f[1]) .. ',"data":' .. f[2] .. ',"opts":' .. encoded .. ',"failedReason":' .. text(reason)
    .. ',"stacktrace":' .. (f[9] or '[]') .. ',"attemptsMade":' .. (f[5] or 0) .. ',"attemptsStarted":' .. (f[6] or 0)
    .. ',"stalledCounter":' .. (f[7] or 0) .. ',"throttled":' .. (f[8] or 0) .. ',"timestamp":' .. f[4]
    .. (f[11] and ',"progress":' .. f[11] or '')
    .. (f[10] and ',"processedOn":' .. f[10] or '') .. ',"finishedOn":' .. now_ms .. ',"redriven":' .. again .. '}'
  local dead_base = prefix .. ':' .. to .. ':'
  return dead_base, { cmsgpack.pack({ dead_base, dead_id, f[1], tonumber(now_ms) }), data, cmsgpack.pack({}) }
end

function overflow.add_dead_letter(...)
  local made, dead_base, args = pcall(overflow.dead_letter, ...)
  return made and not new_job.add_whole(add_standard_job, redis, dead_base, args)
end

-- Like BullMQ's getKeepJobs.
function overflow.keeps(rule)
  if type(rule) == 'table' then return rule end
  if type(rule) == 'number' then return { count = rule } end
  return { count = rule == true and 0 or -1 }
end

function overflow.fail(base, id, keeps, reason, now_ms)
  overflow.redis_of_end = overflow.redis_of_end or hooked_redis(redis, overflow.handlers(base))
  -- High enough that no last attempt is reported.
  local options = cmsgpack.pack({ token = '0', keepJobs = keeps, attempts = 1000000000, maxMetricsSize = '' })
  move_to_finished.run(overflow.redis_of_end, move_to_finished.keys(base, id, 'failed'),
    { id, now_ms, 'failedReason', reason, 'failed', '0', base, options, '' })
end

-- Removes a job from where it waits. group: that of the job, and the opened groups
function overflow.take_out(base, shape, id, group, groups)
  if shape.overflow == 'drop-oldest' and not group then
    redis.call('LREM', base .. 'wait', -1, id)
  else
    if group then groups:remove(group, id) end
    redis.call('ZREM', base .. 'prioritized', id)
  end
end

function overflow.drop_one(base, shape, id, now_ms, group, groups)
  local reason = 'dropped: queue full (overflow ' .. shape.overflow .. ')'
  local options = overflow.options[id]
  local keeps, to = overflow.keeps(options.removeOnFail), shape.overflow_to
  -- A job whose dead letter cannot be written (an ACL, a key of another type) is kept whatever its options say.
  if to and not overflow.add_dead_letter(base, to, id, options, reason, now_ms) then keeps = { count = -1 } end
  overflow.take_out(base, shape, id, group, groups)
  overflow.fail(base, id, keeps, reason, now_ms)
  redis.call('XADD', base .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'dropped', 'jobId', id, 'overflow',
    shape.overflow)
end

-- Drops jobs once their replacements are in. The caller saves the groups afterwards.
function overflow.drop(base, shape, ids, now)
  local now_ms = as_text.us(math.floor(now / 1000))
  for _, id in ipairs(ids) do overflow.drop_one(base, shape, id, now_ms, ids.of and ids.of[id], ids.groups) end
  redis.call('HINCRBY', base .. 'meta:meter', 'droppedTotal', #ids)
end

-- Drops jobs once, if ids.due says that one of their replacements is in. Jobs that are being gathered (groups/jobs)
-- have to be in their groups before others leave these.
function overflow.drop_due(base, shape, ids, now)
  if not ids or not ids.due then return end
  ids.due = nil
  if ids.groups and ids.groups.gathered then ids.groups:store_gathered() end
  overflow.drop(base, shape, ids, now)
end

return overflow
