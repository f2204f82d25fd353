-- Jobs of groups that hold a place, but are not in the line of their group yet: delayed jobs, retries in their backoff,
-- iterations of a scheduler and parents that wait for their children. BullMQ keeps those of all groups together.
--   meta:groups:later   sorted set of '<length of the group's id>:<group>:<job>', all with score 0: those of one group
--                       are neighbours
-- Scripts without knowledge of groups do not note that such a job was promoted or removed: before a group is found full
-- its jobs are checked, and reports check some of all.
local group_later = { CHUNK = 100, SOUGHT = 1000 }

function group_later.key(base)
  return base .. 'meta:groups:later'
end

-- The common beginning of a group's members.
function group_later.stem(group)
  return #group .. ':' .. group .. ':'
end

function group_later.add(base, group, id)
  redis.call('ZADD', group_later.key(base), 0, group_later.stem(group) .. id)
end

function group_later.remove(base, group, id)
  redis.call('ZREM', group_later.key(base), group_later.stem(group) .. id)
end

-- ';' follows ':'.
function group_later.range(group)
  return '[' .. group_later.stem(group), '(' .. #group .. ':' .. group .. ';'
end

function group_later.count(base, group)
  return redis.call('ZLEXCOUNT', group_later.key(base), group_later.range(group))
end

function group_later.ids(base, group, from, most)
  local first, last = group_later.range(group)
  local ids = redis.call('ZRANGEBYLEX', group_later.key(base), first, last, 'LIMIT', from, most)
  for i, member in ipairs(ids) do ids[i] = string.sub(member, #group_later.stem(group) + 1) end
  return ids
end

-- Whether a job that a plain BullMQ client promoted, or a parent that it released, is near an end of the wait list: not
-- in line.
function group_later.listed(base, id)
  local wait = base .. 'wait'
  return redis.call('LPOS', wait, id, 'MAXLEN', group_later.SOUGHT)
    or redis.call('LPOS', wait, id, 'RANK', -1, 'MAXLEN', group_later.SOUGHT)
end

-- Whether a job is still delayed, or waits for its children; second, whether it holds a place. due: up to which score
-- BullMQ's delayed jobs do, nil if all do
function group_later.waits(base, id, due)
  local score = redis.call('ZSCORE', base .. 'delayed', id)
  if score then return true, not due or tonumber(score) <= due end
  return (redis.call('ZSCORE', base .. 'waiting-children', id) or group_later.listed(base, id)) and true or false, true
end

-- When the n-th of the delayed jobs of a group is due, ms, by some of them; nil if none is delayed.
function group_later.due(base, group, n)
  local dues = {}
  for _, id in ipairs(group_later.ids(base, group, 0, group_later.CHUNK)) do
    -- BullMQ's score of a delayed job is its time in ms * 4096 + a counter.
    local score = redis.call('ZSCORE', base .. 'delayed', id)
    if score then dues[#dues + 1] = math.floor(tonumber(score) / 4096) end
  end
  table.sort(dues)
  return dues[math.min(n, #dues)]
end

-- Forgets some jobs that are elsewhere by now, others with each call.
function group_later.sweep(base, now)
  local key = group_later.key(base)
  local count = redis.call('ZCARD', key)
  if count == 0 then return end
  local from = math.max(0, now % count - group_later.CHUNK + 1)
  for _, member in ipairs(redis.call('ZRANGE', key, from, from + group_later.CHUNK - 1)) do
    local length = string.match(member, '^%d+')
    local id = string.sub(member, #length + tonumber(length) + 3)
    if not group_later.waits(base, id) then redis.call('ZREM', key, member) end
  end
end

return group_later
