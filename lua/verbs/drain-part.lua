--[[
  Drains a queue in parts. The jobs to remove are set aside at once, under keys of this drain: none of them can start
  any more, and jobs added later stay. They are then removed part by part, by BullMQ's own drain.
  ARGV
    [1]  id of the drain: beginning the same drain again within an hour changes nothing, even if it has ended
    [2]  'begin', 'begin all' (delayed jobs too) or 'go'
    [3]  maximum number of jobs per part
  Returns for 'begin' and 'begin all' the ids of all unfinished drains, including those of dead processes; else 1,
  or 0 once nothing is left.
]]
local drain = use 'bullmq/drain'
local wake = use 'gate/wake'
local group_hooks = use 'groups/hooks'

local base, id, step = string.sub(KEYS[1], 1, -11), ARGV[1], ARGV[2]
local drains = base .. 'meta:draining'

local function aside(kind)
  return drains .. ':' .. id .. ':' .. kind
end

-- As in BullMQ: a scheduler's next iteration stays, or no further one would follow.
local function keep_iteration(job)
  for _, kind in ipairs({ 'delayed', 'prioritized' }) do
    if redis.call('ZSCORE', base .. kind, job) then return end
    local score = redis.call('ZSCORE', aside(kind), job)
    if score then
      redis.call('ZREM', aside(kind), job)
      redis.call('ZADD', base .. kind, score, job)
      return
    end
  end
  if redis.call('EXISTS', base .. job) == 1 and redis.call('LREM', aside('wait'), 1, job) > 0 then
    redis.call('RPUSH', base .. 'wait', job)
  end
end

local MEMORY_MS = 3600000

local function begin(kinds)
  if not redis.call('SET', base .. 'meta:drained:' .. id, '', 'NX', 'PX', MEMORY_MS) then return end
  redis.call('SADD', drains, id)
  for _, kind in ipairs(kinds) do
    if redis.call('EXISTS', base .. kind) == 1 then redis.call('RENAME', base .. kind, aside(kind)) end
  end
  local schedulers = redis.call('ZRANGE', base .. 'repeat', 0, -1, 'WITHSCORES')
  for i = 1, #schedulers, 2 do keep_iteration('repeat:' .. schedulers[i] .. ':' .. schedulers[i + 1]) end
end

-- Takes a part of the jobs set aside; nil if none are left.
local function take(most)
  for _, kind in ipairs({ 'wait', 'paused' }) do
    local jobs = redis.call('LRANGE', aside(kind), 0, most - 1)
    if jobs[1] then
      redis.call('LTRIM', aside(kind), #jobs, -1)
      return jobs
    end
  end
  for _, kind in ipairs({ 'delayed', 'prioritized' }) do
    local jobs = redis.call('ZRANGE', aside(kind), 0, most - 1)
    if jobs[1] then
      redis.call('ZREMRANGEBYRANK', aside(kind), 0, #jobs - 1)
      return jobs
    end
  end
  return nil
end

if step ~= 'go' then
  begin(step == 'begin' and { 'wait', 'paused', 'prioritized' } or { 'wait', 'paused', 'prioritized', 'delayed' })
  wake.head_changed(base)
  return redis.call('SMEMBERS', drains)
end
local jobs = take(tonumber(ARGV[3]))
if not jobs then
  redis.call('SREM', drains, id)
  -- Groups that removed jobs held are checked again.
  if redis.call('HDEL', base .. 'meta:groups', 'at') == 1 then wake.one(base) end
  return 0
end
redis.call('RPUSH', aside('part'), unpack(jobs))
local none = drains .. ':none'
group_hooks.run(drain, redis, { aside('part'), none, none, none, base .. 'repeat' }, { base, '0' })
return 1
