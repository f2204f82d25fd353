--[[
  Cancels the next jobs of a list or set that match a filter, as lua/verbs/cancel-job does one.
  ARGV
    [1]  prioritized, delayed, waiting-children, wait, paused or active
    [2]  how many jobs of it to pass over: those that were looked at before, and stayed
    [3]  how many to look at, at most
    [4]  how many to cancel, at most
    [5]  JSON: { name, group, before } of the jobs to cancel, each of them optional; before: ms since 1970
    [6]  why
    [7]  who, '' if not given
    [8]  what the jobs fail with
    [9]  1 if jobs that wait are removed instead
  Returns how many to pass over next, -1 if no further one is there, then how many failed, were removed, are aborting,
  and are stalled.
]]
local cancelled = use 'ends/cancelled'

local base, place, from = string.sub(KEYS[1], 1, -11), ARGV[1], tonumber(ARGV[2])
local look, most, filter = tonumber(ARGV[3]), tonumber(ARGV[4]), cjson.decode(ARGV[5])
local c = { reason = ARGV[6], by = ARGV[7], failure = ARGV[8], removes = ARGV[9] == '1' }
local counts = { failed = 0, removed = 0, aborting = 0, stalled = 0 }

-- The oldest come first: BullMQ adds at the head of a list, and takes from its end.
local function next_ids()
  if redis.call('TYPE', base .. place).ok == 'zset' then return redis.call('ZRANGE', base .. place, from, from + look - 1) end
  local ids, oldest = redis.call('LRANGE', base .. place, -from - look, -from - 1), {}
  for i = #ids, 1, -1 do oldest[#oldest + 1] = ids[i] end
  return oldest
end

-- One that runs and was cancelled before is not cancelled again.
local function matches(id)
  local f = redis.call('HMGET', base .. id, 'name', 'timestamp', 'defa')
  if not f[1] or (place == 'active' and f[3]) then return false end
  if filter.name and f[1] ~= filter.name then return false end
  if filter.before and tonumber(f[2]) > filter.before then return false end
  if not filter.group then return true end
  local group = cjson.decode(redis.call('HGET', base .. id, 'opts') or '{}').group
  return type(group) == 'table' and group.id == filter.group
end

local ids, looked, cancels = next_ids(), 0, 0
for _, id in ipairs(ids) do
  if cancels == most then break end
  looked = looked + 1
  if not matches(id) then
    from = from + 1
  else
    cancels = cancels + 1
    local outcome = cancelled.job(base, id, place, c)
    if counts[outcome] then counts[outcome] = counts[outcome] + 1 end
    if outcome ~= 'failed' and outcome ~= 'removed' then from = from + 1 end
  end
end
local is_done = looked == #ids and #ids < look
return { is_done and -1 or from, counts.failed, counts.removed, counts.aborting, counts.stalled }
