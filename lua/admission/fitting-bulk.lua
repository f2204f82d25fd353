local claims = use 'admission/claims'
local fits_surely = use 'admission/fits-surely'
local new_job = use 'admission/new-job'
local occupancy = use 'admission/occupancy'
local batch_once = use 'ends/batch-once'
local wake = use 'gate/wake'
local group_hooks = use 'groups/hooks'
local queue_groups = use 'groups/queue-groups'
local group_share = use 'groups/share'
local hooked_redis = use 'redis/hooked-redis'
local redis_now = use 'redis/redis-now'
local parsed = use 'shape/parsed'

-- Jobs of one call that certainly fit together, or whose places are claimed: only BullMQ's add script runs, for each.
-- call (lua/verbs/add-bulk.lua): key and base of the shape, the caller's identity of it, argv with `count` jobs of
-- FIELDS arguments from `first` on, described (the jobs by their texts), claim with lease_ms, or '', are_new, and each:
-- whether the other jobs remain if one fails
local fitting_bulk = { FIELDS = 4 }

-- Takes the claimed places, if there is a claim. A resent call first needs a search for its jobs, which is done
-- elsewhere.
local function has_places(call, deduplicates, now)
  if call.claim == '' then return true end
  local first = new_job.ids(call.base, call.argv[call.first + 1])
  if not call.are_new or deduplicates or redis.call('EXISTS', call.base .. first) == 1 then return false end
  return claims.take(call.key, call.base, call.claim, call.count, now or redis_now(), call.lease_ms)
end

-- The error's text for a reply of its own, or the error, which ends the call.
function fitting_bulk.failed(each, reply)
  if each then return { 0, type(reply) == 'table' and reply.err or tostring(reply) } end
  return nil, type(reply) == 'table' and reply or redis.error_reply(reply)
end

-- Calls try(job, at) for each job, which returns as pcall does. Returns BullMQ's replies; second, the error that ended
-- the call.
local function add_all(call, try)
  local replies = {}
  for at = call.first, #call.argv, fitting_bulk.FIELDS do
    local done, reply = try(call.described[call.argv[at]], at + 1)
    if not done then
      local failure
      reply, failure = fitting_bulk.failed(call.each, reply)
      if failure then return replies, failure end
    end
    replies[#replies + 1] = reply
  end
  return replies
end

-- Returns the replies if the number of free places alone decides and is sufficient, else nil.
local function add_plain(call, highest, deduplicates)
  local fits, timed = fits_surely(call.key, call.base, call.identity, call.count, highest, call.claim ~= '')
  if not (fits and has_places(call, deduplicates)) then return nil end
  local add = new_job.adder(hooked_redis(redis, batch_once.handlers(call.base)), call.base)
  local replies, failure = add_all(call, function(job, at) return pcall(add, job.script, call.argv, at) end)
  wake.touched()
  if timed then wake.head_changed(call.base) end
  return replies, failure, redis.call('LLEN', call.base .. 'wait')
end

-- As fits_surely, among groups. Returns the groups if the jobs fit.
local function fit_in_groups(call, highest, now)
  local f = redis.call('HMGET', call.key, 'digest', 'claimed')
  local shape = parsed.of(call.key, f[1])
  if not (shape and shape.fits and shape.groups) or shape.identity ~= call.identity then return nil end
  if shape.interval and highest > shape.burst then return nil end
  local base, capacity, depth = call.base, nil, nil
  if call.claim == '' and shape.unreserved then
    if f[2] and f[2] ~= '0' then return nil end
    capacity, depth = shape.unreserved, occupancy.depth(base, shape, now) + call.count
    if depth > capacity then return nil end
  end
  local names, g = {}, queue_groups.open(base, shape, now)
  for _, job in pairs(call.described) do names[#names + 1] = job.group[1] end
  return not group_share.may_refuse(g, names, highest, capacity, depth) and g or nil
end

-- As add_plain, for jobs that are all plain within their groups.
local function add_in_groups(call, highest)
  local base, now = call.base, redis_now()
  local groups = fit_in_groups(call, highest, now)
  if not (groups and has_places(call, false, now)) then return nil end
  groups:gather()
  local add = new_job.adder(group_hooks.adding(base, nil, groups, now, batch_once.handlers(base)), base)
  local replies, failure = add_all(call, function(job, at)
    groups.adding = job.group
    return pcall(add, job.script, call.argv, at)
  end)
  group_hooks.save_adds(groups)
  wake.head_changed(base, groups)
  wake.delayed(base)
  wake.touched()
  return replies, failure
end

-- Adds the jobs if they certainly fit. Returns BullMQ's replies, nil if they might not fit; second, the error that
-- ended the call; third, the number of waiting jobs now, nil among groups.
function fitting_bulk.add(call)
  local fit, grouped, deduplicates, highest = true, true, false, 0
  for _, job in pairs(call.described) do
    fit, grouped = fit and job.fits, grouped and job.is_plain
    deduplicates, highest = deduplicates or job.deduplicates, math.max(highest, job.cost)
  end
  if fit then return add_plain(call, highest, deduplicates) end
  if grouped and not deduplicates then return add_in_groups(call, highest) end
  return nil
end

return fitting_bulk
