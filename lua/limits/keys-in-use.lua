local as_text = use 'redis/as-text'
local call_state = use 'redis/call-state'

-- Which values of its keys a limit with `maxKeys` or `onConflict` has in use: those of jobs that have not ended, and those whose state still
-- matters. Jobs are noted when they are added and when they leave; that one has ended, however it did, is seen when its entry
-- is looked at, a few with each job and more when a value needs room.
--   meta:limits:keys:<name>   value -> when it was last seen in use, µs
--   meta:limits:jobs:<name>   all of score 0: <length of the value>:<value>:<part of a hash of the job id><job id>
local keys_in_use = {
  -- So many values and jobs are looked at for values that need room, once in a call.
  LOOKS = 100,
  -- The same with each job: more than one, so that what has ended does not pile up.
  PRUNED = 2,
}
-- Of the hash, so that the entries before which a job stands are any.
local HASHED = 6

-- Whether limits (JSON) bound their keys, or the jobs of each.
function keys_in_use.bounded(limits)
  return string.find(limits, '"maxKeys":', 1, true) ~= nil or string.find(limits, '"onConflict":', 1, true) ~= nil
end

function keys_in_use.bounds(l)
  return (l.maxKeys or l.onConflict) ~= nil
end

local function keys_of(base, name)
  return base .. 'meta:limits:keys:' .. name
end

local function jobs_of(base, name)
  return base .. 'meta:limits:jobs:' .. name
end

local function prefix_of(value)
  return #value .. ':' .. value .. ':'
end

-- The entry of the first job that has not ended, of at most `most` of a value, from `from` on; nil if there is none. Entries
-- before it go. Second, how many were looked at.
local function runs_or_waits(base, name, prefix, from, most)
  local found = redis.call('ZRANGEBYLEX', jobs_of(base, name), from, '(' .. prefix .. '\255', 'LIMIT', 0, most)
  for _, entry in ipairs(found) do
    local f = redis.call('HMGET', base .. string.sub(entry, #prefix + HASHED + 1), 'opts', 'finishedOn')
    if f[1] and not f[2] then return entry, #found end
    redis.call('ZREM', jobs_of(base, name), entry)
  end
  return nil, #found
end

-- Forgets a value, if it is not in use. most: of its jobs. Returns how many of them were looked at.
local function look_at(base, l, value, now, most)
  local used, seen = redis.call('EXISTS', l.states .. value) == 1, 0
  if not used then used, seen = runs_or_waits(base, l.name, prefix_of(value), '[' .. prefix_of(value), most) end
  -- More than were looked at may be left.
  if used or seen == most then redis.call('ZADD', keys_of(base, l.name), as_text.us(now), value)
  else redis.call('ZREM', keys_of(base, l.name), value) end
  return seen
end

-- The values that were looked at longest ago are looked at, at most so many.
local function sweep(base, l, now, most)
  local left = keys_in_use.LOOKS
  for _, value in ipairs(redis.call('ZRANGE', keys_of(base, l.name), 0, most - 1)) do
    if left <= 0 then return end
    left = left - 1 - look_at(base, l, value, now, left)
  end
end

-- Whether so many values that are not in use would be too many.
function keys_in_use.is_full(base, l, count, now)
  local key = keys_of(base, l.name)
  if redis.call('ZCARD', key) + count <= l.maxKeys then return false end
  if not call_state.swept[key] then sweep(base, l, now, keys_in_use.LOOKS) end
  call_state.swept[key] = true
  return redis.call('ZCARD', key) + count > l.maxKeys
end

function keys_in_use.has(base, l, value)
  return redis.call('ZSCORE', keys_of(base, l.name), value) and true or false
end

-- A job of this value that has not ended; nil if there is none.
function keys_in_use.job(base, l, value)
  local prefix = prefix_of(value)
  local entry, seen
  repeat entry, seen = runs_or_waits(base, l.name, prefix, '[' .. prefix, keys_in_use.LOOKS)
  until entry or seen < keys_in_use.LOOKS
  return entry and string.sub(entry, #prefix + HASHED + 1)
end

-- The jobs of this value that have not ended, besides the one that was just added, at most LOOKS. None if that has
-- ended before. added: as in groups/limits-of
function keys_in_use.replaced(base, l, value, id, added)
  local prefix, ids, is_there = prefix_of(value), {}, false
  local from = '[' .. prefix
  while #ids < keys_in_use.LOOKS do
    local entry, seen = runs_or_waits(base, l.name, prefix, from, keys_in_use.LOOKS)
    if not entry and seen < keys_in_use.LOOKS then break end
    local other = entry and string.sub(entry, #prefix + HASHED + 1)
    if other == id then is_there = true
    elseif entry and not (added and added[base .. other]) then ids[#ids + 1] = other end
    if entry then from = '(' .. entry end
  end
  return is_there and ids or {}
end

-- A job of this value was added, or leaves. Returns whether it was not noted before.
function keys_in_use.note(base, l, value, id, now)
  local prefix = prefix_of(value)
  local entry = prefix .. string.sub(redis.sha1hex(id), 1, HASHED) .. id
  local is_new = redis.call('ZADD', jobs_of(base, l.name), 0, entry) == 1
  if redis.call('ZADD', keys_of(base, l.name), as_text.us(now), value) == 1 then sweep(base, l, now, keys_in_use.PRUNED) end
  if not is_new then return false end
  local _, seen = runs_or_waits(base, l.name, prefix, '(' .. entry, keys_in_use.PRUNED)
  if seen == 0 then runs_or_waits(base, l.name, prefix, '[' .. prefix, keys_in_use.PRUNED) end
  return true
end

-- The limits (JSON) of a queue change: what no limit bounds any more is forgotten.
function keys_in_use.change_limits(base, before, after)
  local bounds = {}
  for _, l in ipairs(after and cjson.decode(after) or {}) do bounds[l.name] = keys_in_use.bounds(l) end
  for _, l in ipairs(cjson.decode(before)) do
    if keys_in_use.bounds(l) and not bounds[l.name] then redis.call('DEL', keys_of(base, l.name), jobs_of(base, l.name)) end
  end
end

return keys_in_use
