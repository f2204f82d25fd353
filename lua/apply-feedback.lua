--[[
  Takes in what one answer of the other side says, for the whole fleet, and puts the job that it refused back. A pause is
  never shortened; the rate falls once for all who heard of the same throttling; every change is told in the events.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  JSON: found (what src/feedback/feedback-request.ts makes of each finding), sent (µs at which the job departed,
         text), by, jitter (0 to 1), oks (calls that went well since the last word of them), limits (ms: pauseMs,
         maxBackoffMs, maxPauseMs, jitterMs, probeMs, slowStartMs, slowMs), adapt (decrease, increase, quietMs, floor) or
         nothing, job or nothing (id, token, score, head: whether it goes back to the head; most: how often; reason: why, if it is to be kept)
    [2]  born of the shape that the caller knows, '' if none
    [3]  its rev
  Returns {1, the shape, JSON of the changes, how often the job was throttled so far (0: there is none, or it is not the
  caller's any more), 1 if it went back}; {-1} where Redis has lost what the caller knows.
]]
--- @include "lib/feedback"
--- @include "lib/put-back"
--- @include "lib/history"
--- @include "lib/unrefused"
local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now = redis_now()
begin_unrefused(key)
local declared, overrides = reshape_begin(key, base, now, ARGV[2], ARGV[3])
if not declared then return { -1 } end
local r = cjson.decode(ARGV[1])
local stored = redis.call('HMGET', key, 'feedback', 'rate', 'limits', 'mode')
r.key, r.base, r.now, r.now_ms, r.changes = key, base, now, math.floor(now / 1000), {}
r.doc = shape_document(stored[1])
r.epoch, r.sent = tonumber(r.doc.epoch), tonumber(r.sent)
r.configured = stored[2] and shape_interval(cjson.decode(stored[2]))
-- Who does not enforce his limits is held by a pause all the same.
r.shape_limits = stored[3] and (stored[4] or 'enforce') == 'enforce' and cjson.decode(stored[3]) or {}

-- Whether one of the rule's matches is to be acted on: from the n-th within its period on.
local function triggered(found)
  local trigger = found.trigger
  if not trigger then return true end
  local matches = base .. 'meta:matches:' .. found.rule
  redis.call('ZADD', matches, us_text(now), us_text(now) .. ':' .. (r.sent or 0))
  redis.call('ZREMRANGEBYSCORE', matches, '-inf', us_text(now - trigger.periodMs * 1000))
  redis.call('ZREMRANGEBYRANK', matches, 0, -trigger.count - 1)
  redis.call('PEXPIRE', matches, trigger.periodMs)
  return redis.call('ZCARD', matches) >= trigger.count
end

local handlers = {
  pause = feedback_pause, slow = feedback_slow, concurrency = feedback_concurrency,
  ok = function(request, f) feedback_ok(request, f, request.oks) end,
}
local throttled, heard
for _, found in ipairs(r.found) do
  local f = found.feedback
  if triggered(found) then
    handlers[f.kind](r, f)
    if f.kind == 'pause' or (f.kind == 'slow' and not f.rate) then
      heard = true
      local of_limit = type(f.scope) == 'table' and f.scope.limit
      if not f.ttlMs and not of_limit then throttled = throttled or f end
    end
  end
end
if throttled then feedback_decrease(r, throttled) end
if heard and feedback_fresh(r) then feedback_heard(r) end
if r.long_pause then feedback_slow_start(r, r.long_pause) end

redis.call('HSET', key, 'feedback', cjson.encode(r.doc))
for _, change in ipairs(r.changes) do
  redis.call('XADD', base .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'feedback', 'change', cjson.encode(change))
  history.note_feedback(base, cjson.encode(change))
end
local shape
if #r.changes > 0 or r.reshaped then
  shape_resolve(key, base, declared, overrides, now)
  shape = reshape_end(key, base, now)[2]
else
  shape = redis.call('HGETALL', key)
end

-- How often the job was throttled, and whether it went back to the head.
local function give_back(job)
  if redis.call('GET', base .. job.id .. ':lock') ~= job.token then return 0, 0 end
  local count = redis.call('HINCRBY', base .. job.id, 'throttled', 1)
  if job.reason then redis.call('HSET', base .. job.id, 'throttledFor', job.reason) end
  if count > job.most or not job.head then return count, 0 end
  if not put_back(base, job.id, job.token, job.score) then return count, 0 end
  put_back_mark(base)
  queue_limits_freed(base, stored[3])
  return count, 1
end

local count, back = 0, 0
if r.job then count, back = give_back(r.job) end
return { 1, shape, cjson.encode(r.changes), count, back }
