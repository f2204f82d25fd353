--[[
  Admits new jobs of groups that certainly fit together, or whose places are claimed, all without a priority inside their
  groups: only BullMQ's own add script runs, for each. If they might not fit, nothing is done: lua/verbs/admit-bulk.lua handles
  them.
  KEYS
    [1]  wait  [2] paused  [3] meta  [4] id  [5] completed  [6] delayed  [7] active  [8] events  [9] marker
    [10] prioritized  [11] pc  [12] …:meta:shape
  ARGV
    [1]  'id:revision' of the shape that the caller knows
    [2]  the highest cost of the jobs
    [3]  '' or a claim (claim-places) that the places are taken from: 'id lease-ms first', with the id of the first job.
         The caller made all ids for this bulk and no job has a deduplication id
    then four for each job: BullMQ's three arguments, its group
  Returns BullMQ's replies; that of a job that failed is {the text of the error}. Nil if the jobs might not fit.
]]
local bulk = use 'admission/bulk'
local claims = use 'admission/claims'
local batch_once = use 'ends/batch-once'
local touched = use 'gate/touched'
local wake = use 'gate/wake'
local group_adds = use 'groups/adds'
local group_bounds = use 'groups/bounds'
local queue_groups = use 'groups/queue-groups'
local hooked_redis = use 'redis/hooked-redis'
local redis_now = use 'redis/redis-now'

local FIELDS, FIRST = 4, 4
local base, jobs = string.sub(KEYS[12], 1, -11), (#ARGV - FIRST + 1) / FIELDS
local claim, delayed = ARGV[3], redis.call('ZCARD', KEYS[6])

-- As admission/fits-surely: whether only the number of free places decides, and they suffice.
local function fits(names, now)
  local f = redis.call('HMGET', KEYS[12], 'born', 'rev', 'groups', 'capacity', 'reservedPlaces', 'claimed', 'interval',
    'burst', 'mode', 'expires', 'maxWaitMs', 'priorityAgeingMs')
  if not f[3] or f[1] .. ':' .. f[2] ~= ARGV[1] then return false end
  if (f[9] and f[9] ~= 'enforce') or f[10] or f[11] or f[12] then return false end
  local queue = {}
  if claim == '' and f[4] then
    if f[6] and f[6] ~= '0' then return false end
    queue.capacity = tonumber(f[4]) - (f[5] and tonumber(string.match(f[5], '^%d+')) or 0)
    queue.depth = redis.call('LLEN', KEYS[1]) + redis.call('ZCARD', KEYS[10]) + delayed
      + redis.call('ZCARD', base .. 'waiting-children') + jobs
    if queue.depth > queue.capacity then return false end
  end
  if group_bounds(base, f[3], names, tonumber(ARGV[2]), now, queue) then return false end
  return not (f[7] and tonumber(ARGV[2]) > (tonumber(f[8]) or 1))
end

local names = {}
for at = FIRST, #ARGV, FIELDS do names[#names + 1] = ARGV[at + 3] end
local now = redis_now()
if not fits(names, now) then return false end
if claim ~= '' and not claims.take(KEYS[12], base, claim, jobs, now) then return false end
local groups, replies, pushed, pushes = queue_groups.bare(base), {}, nil, nil
groups:gather()
local handlers, wait = group_adds.handlers(groups, batch_once.handlers(base)), KEYS[1]
local push = handlers.LPUSH
function handlers.LPUSH(command, key, id, ...)
  -- A parent in this queue may be released, too.
  if key ~= wait or pushed then return push(command, key, id, ...) end
  pushed, pushes = id, command
  return 1
end
handlers.RPUSH = handlers.LPUSH
bulk.redis = hooked_redis(redis, handlers)
local at = FIRST
for i, group in ipairs(names) do
  pushed = nil
  local done, reply = pcall(bulk.add_as, 'standard', KEYS, ARGV, at)
  replies[i] = done and reply or { type(reply) == 'table' and reply.err or tostring(reply) }
  if pushed == reply then
    groups:gather_job(group, reply, groups:next_number(), 0)
  elseif pushed then
    push(pushes, wait, pushed)
  end
  at = at + FIELDS
end
group_adds.save(groups)
wake.head_changed(base, groups)
if next(touched.bases) then touched.wake() end
if delayed > 0 then wake.delayed(base) end
return replies
