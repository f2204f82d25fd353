local limit_state = use 'limits/state'
local as_text = use 'redis/as-text'
local call_state = use 'redis/call-state'

-- The values of its keys that a limit with `maxKeys` or `onConflict` has in use: those of unended jobs, and those whose
-- state still matters. Jobs are noted when they are added and when they depart. The end of a job, however it happens,
-- is noticed when its entry is checked, a few with each job and more when a value needs room.
--   meta:limits:keys:<name>   value -> when it was last seen in use, µs
--   meta:limits:jobs:<name>   all of score 0: <length of the value>:<value>:<part of a hash of the job id><job id>
local keys_in_use = {
  -- Maximum number of values and jobs to check for values that need room, once in a call.
  LOOKS = 100,
  -- The same with each job: more than one, so that ended entries do not pile up.
  PRUNED = 2,
}
-- Length of the hash, which makes the order of entries arbitrary.
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

-- The entry of the first unended job, of at most `most` of a value, from `from` on; nil if there is none. Removes
-- entries before it. Second, how many were checked.
local function runs_or_waits(base, name, prefix, from, most)
  local found = redis.call('ZRANGEBYLEX', jobs_of(base, name), from, '(' .. prefix .. '\255', 'LIMIT', 0, most)
  for _, entry in ipairs(found) do
    local f = redis.call('HMGET', base .. string.sub(entry, #prefix + HASHED + 1), 'opts', 'finishedOn')
    if f[1] and not f[2] then return entry, #found end
    redis.call('ZREM', jobs_of(base, name), entry)
  end
  return nil, #found
end

-- Forgets a value, if it is not in use. most: of its jobs. Returns how many of them were checked.
local function check_value(base, l, value, now, most)
  local used, seen = limit_state.matters(l.states .. value, l), 0
  if not used then used, seen = runs_or_waits(base, l.name, prefix_of(value), '[' .. prefix_of(value), most) end
  -- More than the checked ones may be left.
  if used or seen == most then redis.call('ZADD', keys_of(base, l.name), as_text.us(now), value)
  else redis.call('ZREM', keys_of(base, l.name), value) end
  return seen
end

-- Checks the values whose last check is longest ago, at most `most`.
local function sweep(base, l, now, most)
  local left = keys_in_use.LOOKS
  for _, value in ipairs(redis.call('ZRANGE', keys_of(base, l.name), 0, most - 1)) do
    if left <= 0 then return end
    left = left - 1 - check_value(base, l, value, now, left)
  end
end

-- Whether that many new values would be too many.
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

-- An unended job of this value; nil if there is none.
function keys_in_use.job(base, l, value)
  local prefix = prefix_of(value)
  local entry, seen
  repeat entry, seen = runs_or_waits(base, l.name, prefix, '[' .. prefix, keys_in_use.LOOKS)
  until entry or seen < keys_in_use.LOOKS
  return entry and string.sub(entry, #prefix + HASHED + 1)
end

-- The unended jobs of this value, except the one just added, at most LOOKS. None if that has already ended. added: as
-- in groups/limits-of
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

-- A job of this value was added, or departs. Returns whether it was new.
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

-- The limits (JSON) of a queue change: entries without a bounding limit are removed.
function keys_in_use.change_limits(base, before, after)
  local bounds = {}
  for _, l in ipairs(after and cjson.decode(after) or {}) do bounds[l.name] = keys_in_use.bounds(l) end
  for _, l in ipairs(cjson.decode(before)) do
    if keys_in_use.bounds(l) and not bounds[l.name] then redis.call('DEL', keys_of(base, l.name), jobs_of(base, l.name)) end
  end
end

return keys_in_use
