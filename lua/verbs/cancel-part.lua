--[[
  Cancels the next jobs of a list or set that match a filter, as lua/verbs/cancel-job does one.
  ARGV
    [1]  prioritized, delayed, waiting-children, wait, paused or active; or group: of those in prioritized, the jobs
         in the line of the filter's group. Then prioritized means all others
    [2]  how many jobs of it to skip: those that an earlier call checked and left
    [3]  how many to check, at most
    [4]  how many to cancel, at most
    [5]  JSON: { name, group, before } of the jobs to cancel, each of them optional; before: ms since 1970
    [6]  why
    [7]  who, '' if not given
    [8]  failure reason of the jobs
    [9]  1 if waiting jobs are removed instead
  Returns how many to skip next, -1 if there are no more, then the outcome of each cancelled job.
]]
local cancelled = use 'ends/cancelled'
local queue_groups = use 'groups/queue-groups'
local as_text = use 'redis/as-text'

local base, place, from = string.sub(KEYS[1], 1, -11), ARGV[1], tonumber(ARGV[2])
local look, most, filter = tonumber(ARGV[3]), tonumber(ARGV[4]), cjson.decode(ARGV[5])
local c = { reason = ARGV[6], by = ARGV[7], failure = ARGV[8], removes = ARGV[9] == '1' }
local line = place == 'group' and base .. 'meta:group:jobs:' .. filter.group
-- Where jobs outside of lines wait: in `prioritized`, jobs in a line have lower scores.
local beyond_lines = filter.group and place == 'prioritized' and redis.call('HEXISTS', KEYS[1], 'groups') == 1

-- The oldest come first: BullMQ adds at the head of a list, and takes from its end.
local function next_ids()
  if line then return redis.call('ZRANGE', line, from, from + look - 1) end
  if beyond_lines then
    return redis.call('ZRANGEBYSCORE', base .. place, as_text.us(queue_groups.BAND), '+inf', 'LIMIT', from, look)
  end
  if redis.call('TYPE', base .. place).ok == 'zset' then return redis.call('ZRANGE', base .. place, from, from + look - 1) end
  local ids, oldest = redis.call('LRANGE', base .. place, -from - look, -from - 1), {}
  for i = #ids, 1, -1 do oldest[#oldest + 1] = ids[i] end
  return oldest
end

-- A running job that was cancelled before is not cancelled again.
local function matches(id)
  local f = redis.call('HMGET', base .. id, 'name', 'timestamp', 'defa')
  if not f[1] or (place == 'active' and f[3]) then return false end
  if filter.name and f[1] ~= filter.name then return false end
  if filter.before and tonumber(f[2]) > filter.before then return false end
  -- Another script may have removed a job that is still in the line.
  if line then return redis.call('ZSCORE', base .. 'prioritized', id) and true or false end
  if not filter.group then return true end
  local group = cjson.decode(redis.call('HGET', base .. id, 'opts') or '{}').group
  return type(group) == 'table' and group.id == filter.group
end

local ids, looked, outcomes = next_ids(), 0, {}
for _, id in ipairs(ids) do
  if #outcomes == most then break end
  looked = looked + 1
  local outcome, is_cancelled
  if matches(id) then outcome, is_cancelled = cancelled.job(base, id, line and 'prioritized' or place, c) end
  if is_cancelled then outcomes[#outcomes + 1] = outcome end
  if outcome ~= 'failed' and outcome ~= 'removed' then from = from + 1 end
end
local is_done = looked == #ids and #ids < look
return { is_done and -1 or from, outcomes }
