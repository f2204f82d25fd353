local refusals = use 'admission/refusals'
local batch_once = use 'ends/batch-once'
local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local quick_answer = use 'ends/quick-answer'
local grants = use 'gate/grants'
local wake = use 'gate/wake'
local queue_groups = use 'groups/queue-groups'
local pace = use 'meter/pace'
local as_text = use 'redis/as-text'
local delay_clock = use 'redis/delay-clock'
local hooked_redis = use 'redis/hooked-redis'
local job_options = use 'shape/job-options'

-- If only groups may hold the jobs of a queue (groups/queue-groups), BullMQ's script fetches those that may go now by
-- itself, as in ends/quick-path: the gate and what it needs are not set up.
--   q.g       the groups
--   q.pick    the job of a group that was chosen, until it has left
--   q.jobs    those that have left, as in gate/grants
--   q.redis   what BullMQ's script gets as `redis`

-- Whether a worker other than the caller sleeps at that time (µs, text): then what is left for it is for the gate to decide.
local function others_sleep(base, worker, at)
  local asleep = redis.call('ZRANGEBYSCORE', base .. 'meta:sleepers', at, '+inf', 'LIMIT', '0', '2')
  return #asleep > 1 or (asleep[1] and asleep[1] ~= worker)
end

-- The next job of a group that may go now. Jobs without a group are left to the gate.
local function choose(q)
  for _ = 1, q.g.STALE do
    local pick = q.g:pick(q.now, q.now)
    if not pick or pick.from ~= 'group' then return nil end
    if q.g:take(pick) then return pick end
  end
  return nil
end

-- The options of a job and its deferred failure, nil if it has none, of its hash.
local function fields_of(hash)
  local options, deferred
  for i = 1, #hash, 2 do
    local name = hash[i]
    if name == 'opts' then options = hash[i + 1] elseif name == 'defa' then deferred = hash[i + 1] end
  end
  return options, deferred
end

-- The chosen job has left. fields: its hash. One that is too late is failed. Returns its hash.
local function left(q, key, fields)
  local pick = q.pick
  q.pick = nil
  if not pick.cost then
    local options, deferred = fields_of(fields)
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

local function handlers_of(q)
  local base, call = q.base, redis.call
  local pc, started = base .. 'pc', as_text.us(math.ceil(q.now / 1000))
  local handlers = q.g:handle(q.g.most > 1 and batch_once.handlers(base) or {}, redis)
  function handlers.RPOPLPUSH()
    q.pick = choose(q)
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
    return left(q, key, fields)
  end
  function handlers.DEL(command, key, ...)
    if key == pc then return 0 end
    return call(command, key, ...)
  end
  return handlers
end

-- Nil if the gate is needed, if the call was sent before, or if more is to be done than to let jobs leave.
local function open(call, shape)
  local base, time = call.base, redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if refusals.due(base, now) > 0 or grants.recall(base, call.grant) then return nil end
  local at = as_text.time(time)
  if others_sleep(base, call.caller, at) then return nil end
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
  local ids = {}
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do ids[#ids + 1] = exchanged.argv[at] end
  g:expect_ends(ids)
  local q = { base = base, time = time, now = now, at = at, g = g, jobs = {} }
  q.redis = hooked_redis(redis, handlers_of(q))
  return q
end

-- Stores what has changed. Returns whether a group has a place for which nothing was fetched.
local function save(q, call)
  local freed = false
  for _, id in ipairs(exchanged.unseen) do freed = q.g:left(id) or freed end
  q.g:save()
  if #q.jobs > 0 then
    grants.keep(q.base, call.grant, call.memo_ms, q.jobs, nil, nil, q.at)
    pace.count(q.base, #q.jobs, q.now, call.began)
  end
  return freed
end

-- Ends jobs where only groups can hold the next ones: the groups choose without the gate. call: as in lua/verbs/exchange; shape:
-- as ends/quick-path returns it. Returns the reply; nil if the gate is needed, and nothing was done.
local function end_in_groups(call, shape)
  local q, base = open(call, shape), exchanged.base
  if not q then return nil end
  delay_clock.knows(base, true, q.now)
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do
    local came = ends.exchange(at, q.redis)
    if came then came[5] = q.score end
  end
  if save(q, call) then wake.one(base) end
  wake.touched()
  local answer = exchanged.last and quick_answer.reply(base, exchanged.results, exchanged.last, q.time)
  -- BullMQ's text takes held jobs for none.
  local held = answer and answer[5] == 'empty' and redis.call('EXISTS', base .. 'prioritized', base .. 'wait') > 0
  if not answer or answer[5] == 'halted' or held then return { 1, as_text.us(q.now), exchanged.results } end
  -- A worker that takes the marker now would find no job.
  if answer[5] == 'empty' and #q.jobs > 0 then redis.call('ZREM', base .. 'marker', '0') end
  return answer
end

return end_in_groups
