local refusals = use 'admission/refusals'
local batch_once = use 'ends/batch-once'
local grants = use 'gate/grants'
local queue_groups = use 'groups/queue-groups'
local pace = use 'meter/pace'
local as_text = use 'redis/as-text'
local hooked_redis = use 'redis/hooked-redis'
local job_options = use 'shape/job-options'
local shapes = use 'shape/shapes'

-- If only groups may hold the jobs of a queue (groups/queue-groups), BullMQ's script fetches those that may go now by
-- itself, as in ends/quick-path: the gate and what it needs are not set up.
--   q.g       the groups
--   q.pick    the job of a group that was chosen, until it has left
--   q.jobs    those that have left, as in gate/grants
--   q.redis   what BullMQ's script gets as `redis`
local quick_groups = {}

-- Whether a worker other than the caller sleeps at that time (µs, text): then what is left for it is for the gate to decide.
function quick_groups.others_sleep(base, worker, at)
  local asleep = redis.call('ZRANGEBYSCORE', base .. 'meta:sleepers', at, '+inf', 'LIMIT', '0', '2')
  return #asleep > 1 or (asleep[1] and asleep[1] ~= worker)
end

-- Whether anything but groups may hold a job, or a departure is more than that.
function quick_groups.is_plain(shape, now)
  local held = shape.interval or shape.limits or shape.group_limits or shape.own_concurrency or shape.probe
    or shape.paused_until > now or (shape.expires and shape.expires * 1000 <= now)
  return shape.groups and shape.mode == 'enforce' and not (held or shape.ageing_ms or shape.audit)
end

-- call: key, base, identity, wanted, ids (of the jobs that end), grant (id of this call, as in gate/grants). Nil if the gate
-- is needed, if it was sent before, or if more is to be done than to let jobs leave.
function quick_groups.open(call)
  local base, time = call.base, redis.call('TIME')
  local now, shape = time[1] * 1000000 + time[2], shapes.read(call.key)
  if not shape or shape.identity ~= call.identity or not quick_groups.is_plain(shape, now) then return nil end
  if refusals.due(base .. 'meta:meter', now) > 0 or grants.recall(base, call.grant) then return nil end
  local at = as_text.time(time)
  if quick_groups.others_sleep(base, call.caller, at) then return nil end
  local g = queue_groups.open(base, shape, now)
  -- Redis's clock has gone back.
  if g.changed then return nil end
  g.most, g.trusts = call.wanted, true
  g:begin()
  g:plain()
  if g.plain_id then
    g:save()
    return nil
  end
  g:expect_ends(call.ids)
  local q = { base = base, time = time, now = now, at = at, g = g, jobs = {} }
  q.redis = hooked_redis(redis, quick_groups.handlers(q))
  return q
end

-- The next job of a group that may go now. Jobs without a group are left to the gate.
function quick_groups.choose(q)
  for _ = 1, q.g.STALE do
    local pick = q.g:pick(q.now, q.now)
    if not pick or pick.from ~= 'group' then return nil end
    if q.g:take(pick) then return pick end
  end
  return nil
end

-- The options of a job and its deferred failure, nil if it has none, of its hash.
function quick_groups.fields(hash)
  local options, deferred
  for i = 1, #hash, 2 do
    local name = hash[i]
    if name == 'opts' then options = hash[i + 1] elseif name == 'defa' then deferred = hash[i + 1] end
  end
  return options, deferred
end

-- The chosen job has left. fields: its hash. One that is too late is failed. Returns its hash.
function quick_groups.left(q, key, fields)
  local pick = q.pick
  q.pick = nil
  if not pick.cost then
    local options, deferred = quick_groups.fields(fields)
    local cost, _, deadline = job_options.cost(options)
    pick.cost, pick.deferred = cost, deferred
    pick.deadline = deadline and deadline * 1000
  end
  local late = not pick.deferred and pick.deadline and math.max(q.now, pick.slot) > pick.deadline
  if late then
    job_options.expire(q.base, pick.id, pick.deadline)
    fields = redis.call('HGETALL', key)
  end
  if not q.g:is_paced(pick.deferred, pick.deadline) then pick.bucket = nil end
  q.g:served(pick, q.now, pick.cost, not (pick.deferred or late))
  q.jobs[#q.jobs + 1] = { pick.id, pick.number }
  return fields
end

function quick_groups.handlers(q)
  local base, call = q.base, redis.call
  local pc, started = base .. 'pc', as_text.us(math.ceil(q.now / 1000))
  local handlers = q.g:handle(q.g.most > 1 and batch_once.handlers(base) or {}, redis)
  function handlers.RPOPLPUSH()
    q.pick = quick_groups.choose(q)
    return false
  end
  function handlers.ZPOPMIN()
    if not q.pick then return {} end
    q.score = q.pick.number
    return { q.pick.id, q.score }
  end
  function handlers.HMSET(command, key, field, value, ...)
    if field ~= 'processedOn' then return call(command, key, field, value, ...) end
    return call(command, key, field, started, 'departure', q.at, ...)
  end
  function handlers.HGETALL(command, key)
    local fields = call(command, key)
    if not q.pick or key ~= base .. q.pick.id then return fields end
    return quick_groups.left(q, key, fields)
  end
  function handlers.DEL(command, key, ...)
    if key == pc then return 0 end
    return call(command, key, ...)
  end
  return handlers
end

-- Stores what has changed. ended: ids of jobs for which nothing was fetched; began: as in meter/pace
function quick_groups.save(q, call, ended, began)
  local freed = false
  for _, id in ipairs(ended) do freed = q.g:left(id) or freed end
  q.g:save()
  if #q.jobs > 0 then
    grants.keep(q.base, call.grant, call.memo_ms, q.jobs, nil, nil, q.at)
    pace.count(q.base, #q.jobs, q.now, began)
  end
  return freed
end

return quick_groups
