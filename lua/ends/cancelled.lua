local move_to_finished = use 'bullmq/moveToFinished'
local remove_job = use 'bullmq/removeJob'
local without_fetch = use 'ends/without-fetch'
local group_hooks = use 'groups/hooks'
local call_state = use 'redis/call-state'
local redis_now = use 'redis/redis-now'

-- Cancels jobs, for any call.
local cancelled = {}

local SETS = { 'prioritized', 'delayed', 'waiting-children' }
local LISTS = { 'active', 'wait', 'paused' }

-- Where a job is: 'completed', 'failed', or the set that it waits or runs in; nil if nowhere.
function cancelled.place_of(base, id)
  for _, set in ipairs(SETS) do if redis.call('ZSCORE', base .. set, id) then return set end end
  for _, set in ipairs({ 'completed', 'failed' }) do if redis.call('ZSCORE', base .. set, id) then return set end end
  for _, list in ipairs(LISTS) do if redis.call('LPOS', base .. list, id) then return list end end
end

local function publish(base, id, c)
  redis.call('XADD', base .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'cancelled', 'jobId', id, 'reason', c.reason,
    'by', c.by)
end

-- Marks a running job, in case its worker misses the message: BullMQ fails a job with this field instead of running it.
local function abort(base, id, c)
  if redis.call('HSETNX', base .. id, 'defa', c.failure) == 1 then publish(base, id, c) end
  local token = redis.call('GET', base .. id .. ':lock')
  local message = { id = id, token = token or '', failure = redis.call('HGET', base .. id, 'defa') }
  redis.call('PUBLISH', base .. 'meta:wake', 'cancel:' .. cjson.encode(message))
  return token and 'aborting' or 'stalled'
end

-- The next iteration of a scheduler: without it no further one would follow.
local function is_scheduled(base, id)
  local scheduler = redis.call('HGET', base .. id, 'rjk')
  local at = scheduler and redis.call('ZSCORE', base .. 'repeat', scheduler)
  return at and id == 'repeat:' .. scheduler .. ':' .. at
end

-- BullMQ's rule for failed jobs, by the options of the job.
local function kept(rule)
  if type(rule) == 'table' then return rule end
  if type(rule) == 'number' then return { count = rule } end
  return { count = rule == true and 0 or -1 }
end

-- BullMQ ends only running jobs, so the job becomes one for a moment.
local function fail(base, id, place, c)
  local options = cjson.decode(redis.call('HGET', base .. id, 'opts') or '{}')
  local hooked, store = group_hooks.redis(without_fetch.quiet(base))
  if place == 'wait' or place == 'paused' then hooked.call('LREM', base .. place, 1, id)
  else hooked.call('ZREM', base .. place, id) end
  redis.call('LPUSH', base .. 'active', id)
  call_state.ended[id] = true
  local packed = cmsgpack.pack({
    token = '0', keepJobs = kept(options.removeOnFail), attempts = options.attempts or 0, maxMetricsSize = '',
  })
  local now_ms = string.format('%.0f', math.floor(redis_now() / 1000))
  move_to_finished.run(hooked, move_to_finished.keys(base, id, 'failed'), {
    id, now_ms, 'failedReason', c.failure, 'failed', '0', base, packed, '',
  })
  store()
end

-- place: as from place_of. c: {reason, by, failure: the failure reason of the job, removes: a waiting job is removed
-- instead}. Returns the outcome, which lua/verbs/cancel-job lists; second, whether the job is cancelled.
function cancelled.job(base, id, place, c)
  if not place or redis.call('EXISTS', base .. id) == 0 then return 'unknown', false end
  if place == 'active' then return abort(base, id, c), true end
  if place == 'completed' or place == 'failed' then
    -- A resent call, after a lost reply, finds its own result.
    local again = place == 'failed' and redis.call('HGET', base .. id, 'failedReason') == c.failure
    return again and 'failed' or 'ended', again
  end
  if is_scheduled(base, id) then return 'scheduled', false end
  if c.removes then
    group_hooks.run(remove_job, redis, { base .. id, base .. 'repeat' }, { id, '0', base })
  else
    fail(base, id, place, c)
  end
  publish(base, id, c)
  return c.removes and 'removed' or 'failed', true
end

-- Cancels the jobs that jobs of this call replace (`onConflict` of a limit), once the new jobs and their groups are
-- stored. Returns whether there were any.
function cancelled.replaced()
  for _, job in pairs(call_state.replaced) do
    local by, reason = 'limit "' .. job.limit .. '"', 'job ' .. job.by .. ' replaces it'
    local c = { by = by, reason = reason, failure = 'cancelled by ' .. by .. ': ' .. reason }
    cancelled.job(job.base, job.id, cancelled.place_of(job.base, job.id), c)
  end
  return next(call_state.replaced) ~= nil
end

return cancelled
