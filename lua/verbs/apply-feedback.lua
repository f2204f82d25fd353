--[[
  Applies one answer of the downstream to the whole fleet, or to one group or key of it, and puts the refused job back.
  A pause is never shortened; the rate falls once for all workers that saw the same throttling; every change is
  published in the events.
  ARGV
    [1]  JSON: call (id of this call, which takes effect once) or nothing, found (each finding as src/feedback/request.ts
         encodes it), sent (µs at which the job departed, text), by, jitter (0 to 1), oks (successful calls since the
         last report), ok_at (departure of the worker's last one, ms) and ok_ago (ms since that ended) or nothing, group
         (of the job, '' if it has none), keys, tier and members (of the job: limit -> member) or nothing, calls (oks,
         ok_at, ok_ago of the group or limit value of the first finding) or nothing,
         limits (ms: pauseMs, maxBackoffMs, maxSlowPauseMs, maxDownMs, maxPauseMs, jitterMs, probeMs, slowStartMs,
         slowMs, quietMs), adapt (decrease, increase, quietMs, floor) or nothing, job (the refused one) or nothing:
         id, token, score; head: whether no time was given for its retry; give_up_ms: for how long it is tried; reason:
         why, if it has to be kept; retried: whether the answer asks for a retry of this job; target or nothing, same
         and others: when the last successful call to its target, and to any other, departed, ms
    [2]  'id:revision' of the shape that the caller knows, '' if none
    [3]  when the call was first sent, µs, if it may have run already
  Returns {1, the shape, JSON of the changes, how often the job was throttled so far (0: there is none, or it no longer
  belongs to the caller), its outcome}; {-1} if Redis has lost what the caller knows. Outcome: -3 it is given up, -2 it
  uses up an attempt, -1 it went back, else the delay until its retry, ms (0 if the caller knows it).
]]
local put_back = use 'ends/put-back'
local feedback_changes = use 'feedback/changes'
local evidence = use 'feedback/evidence'
local feedback = use 'feedback/feedback'
local wake = use 'gate/wake'
local group_feedback = use 'groups/feedback'
local group_limits_of = use 'groups/limits-of'
local queue_limits = use 'limits/queue-limits'
local bucket = use 'meter/bucket'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now = redis_now()
local declared, overrides = shapes.begin(key, base, now, ARGV[2])
if not declared then return { -1 } end
local r = cjson.decode(ARGV[1])

-- What the answer changed, for a resent call.
local AGAIN_MS, record = 60000, r.call and base .. 'meta:answered:' .. r.call
local before = record and redis.call('GET', record)
if before then
  local changes, count, outcome = unpack(cmsgpack.unpack(before))
  return { 1, redis.call('HGETALL', key), changes, count, outcome }
end
-- The record of an earlier run may have expired. No worker keeps the lock of its job for that long.
if ARGV[3] and now - tonumber(ARGV[3]) > AGAIN_MS * 1000 then return { 1, redis.call('HGETALL', key), '{}', 0, 0 } end
local shape = shapes.load(key, base, now)
local stored = redis.call('HMGET', key, 'feedback', 'rate', 'limits', 'mode', 'rampUp')
r.key, r.base, r.now, r.now_ms, r.changes = key, base, now, math.floor(now / 1000), {}
r.doc = shapes.document(stored[1])
r.epoch, r.sent = tonumber(r.doc.epoch), tonumber(r.sent)
r.fresh = feedback.fresh(r)
r.ramps = stored[5] and true or false
r.configured = stored[2] and bucket.interval(cjson.decode(stored[2]))
-- If limits are not enforced, a pause of one of them holds the queue instead.
r.shape_limits = stored[3] and (stored[4] or 'enforce') == 'enforce' and cjson.decode(stored[3]) or {}
local of_group = group_feedback.request(r, shape)
-- The refused call is compared with other calls of this scope.
local scope = of_group or r

-- Whether the rule takes effect: from its n-th match within its period on.
local function triggered(found)
  local trigger = found.trigger
  if not trigger then return true end
  local matches = base .. 'meta:matches:' .. found.rule
  redis.call('ZADD', matches, as_text.us(now), as_text.us(now) .. ':' .. (r.sent or 0))
  redis.call('ZREMRANGEBYSCORE', matches, '-inf', as_text.us(now - trigger.periodMs * 1000))
  redis.call('ZREMRANGEBYRANK', matches, 0, -trigger.count - 1)
  redis.call('PEXPIRE', matches, trigger.periodMs)
  return redis.call('ZCARD', matches) >= trigger.count
end

-- Whether the caller still owns the refused job; if so, whether the destination or the job itself is at fault.
local function judge()
  local job, named, unnamed = r.job, false, false
  scope.judged = job and redis.call('GET', base .. job.id .. ':lock') == job.token
  for _, found in ipairs(r.found) do
    local f = found.feedback
    scope.unreachable = scope.unreachable or f.about == 'destination'
    scope.heard = scope.heard or not evidence.is_own_word(f)
    if f.kind == 'pause' and f.forMs then
      scope.named_ms = math.max(scope.named_ms or 0, math.min(f.forMs, r.limits.maxPauseMs))
    end
    if not evidence.is_named(f) then unnamed = true
    elseif f.kind == 'pause' or f.kind == 'slow' then named = true end
  end
  if scope.judged then evidence.judge(scope, unnamed and not named) end
end

evidence.went_well(r)
if of_group then group_feedback.went_well(of_group) end
judge()
if of_group then group_feedback.judged(of_group) end

local handlers = {
  pause = feedback.pause, slow = feedback.slow, concurrency = feedback.concurrency,
  ok = function(request, f)
    -- The remaining units of a limit say nothing about successful calls, which are reported about the queue.
    if f.scope ~= 'queue' then return feedback.quota(request, f) end
    feedback.successes(request, f, request.oks)
    if request.contradicted then evidence.contradict(request) end
  end,
}
local throttled, heard, refused

-- Whether a refusal means that the rate is too high.
local function slows(f)
  return f.kind ~= 'concurrency' and not f.ttlMs and f.about ~= 'destination'
end

local function apply(f)
  local is_refusal = f.kind == 'pause' or (f.kind == 'slow' and not f.rate) or (f.kind == 'concurrency' and not f.limit)
  refused = refused or (is_refusal and f.about ~= 'destination')
  local part = group_feedback.part(r, f)
  if part then
    if part.subject then group_feedback[f.kind](part, f) end
    part.refused = part.refused or is_refusal
    if is_refusal and slows(f) then part.throttled = part.throttled or f end
    return
  end
  handlers[f.kind](r, f)
  heard = heard or is_refusal
  -- A slower rate of another limit is not the rate of the queue.
  if is_refusal and slows(f) and f.scope == 'queue' then throttled = throttled or f end
end

for _, found in ipairs(r.found) do
  if triggered(found) and evidence.acts(scope, found.feedback) then apply(found.feedback) end
end
if refused and r.group and shape and shape.keyed_limits then group_limits_of(base, shape, now).note_refused(r.group) end
if throttled and not r.suspected then feedback.decrease(r, throttled) end
if heard and r.fresh then feedback.heard(r, shape) end
if r.long_pause then feedback.slow_start(r, r.long_pause) end
for _, part in ipairs(r.parts) do
  if part.subject then group_feedback.adapt(part) end
  group_feedback.save(part)
end

redis.call('HSET', key, 'feedback', cjson.encode(r.doc))
local changes = {}
for _, of in ipairs({ r.changes, of_group and of_group.changes or {} }) do
  for _, change in ipairs(of) do
    changes[#changes + 1] = change
    feedback_changes.publish(base, change)
  end
end

-- ms; the retry also waits for the end of a current pause
local OWN_MS, MAX_OWN_MS = 1000, 60000
local function own_delay_ms()
  local most = scope.unreachable and r.limits.maxDownMs or MAX_OWN_MS
  local backoff = math.min(OWN_MS * 2 ^ math.min(scope.count - 1, 20), most)
  local paused = math.max(tonumber(redis.call('HGET', key, 'pausedUntil')) or 0, scope.held_until or 0) - now
  return math.ceil(math.max(scope.named_ms or 0, backoff, scope.unnamed and paused / 1000 or 0) * (1 + r.jitter / 10))
end

-- Outcome of the job: if the whole fleet, or its group, is held until a given time, the job goes back to the head.
-- Without a time, or after an earlier refusal, another job goes first, so that the probe is not always the same job.
local function give_back(job)
  put_back.probe(base, job.id)
  if scope.given_up then return -3 end
  -- A job that keeps being refused alone uses up its attempts.
  if scope.alone > (scope.unnamed and evidence.MAX_ALONE or evidence.MAX_ALONE_NAMED) then return -2 end
  if not job.head then return 0 end
  if evidence.is_own(scope) then return own_delay_ms() end
  local second = scope.unnamed or (scope.heard and scope.count > 1)
  if not put_back.job(base, job.id, job.token, job.score, second) then return 0 end
  wake.marked(base)
  queue_limits.freed(base, stored[3])
  return -1
end

local outcome = scope.judged and give_back(r.job) or 0
local shape
if #r.changes > 0 or r.reshaped then
  shapes.resolve(key, base, declared, overrides, now)
  shape = shapes.finish(key, base, now)[2]
else
  -- Workers learn of a doubt when they next ask for jobs.
  if r.news then shapes.revise(key) end
  shape = redis.call('HGETALL', key)
end
local done = { cjson.encode(changes), scope.judged and scope.count or 0, outcome }
if record then redis.call('SET', record, cmsgpack.pack(done), 'PX', AGAIN_MS) end
return { 1, shape, unpack(done) }
