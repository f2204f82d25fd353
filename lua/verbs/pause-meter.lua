--[[
  Pauses the meter: no slot is granted before a time. A later pause never shortens an earlier one; clearing does.
  ARGV
    [1]  'until' a time, 'for' a duration, or 'clear'
    [2]  the time (ms since 1970) or the duration (ms)
    [3]  reason
    [4]  'id:revision' of the shape that the caller knows, '' if none
    [5]  who
    [6]  when the call was first sent, µs, if it may have run already
  Returns {1, the shape}; {-1} if Redis has lost what the caller knows; {1, {}} if there is nothing to clear.
]]
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local history = use 'reports/history'
local ramp = use 'shape/ramp'
local shapes = use 'shape/shapes'

local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now = redis_now()
if ARGV[1] == 'clear' and ARGV[4] == '' and redis.call('EXISTS', key) == 0 then return { 1, {} } end
local declared, overrides = shapes.begin(key, base, now, ARGV[4])
if not declared then return { -1 } end

-- After a long pause the rate rises slowly, if the shape says so. change(known): as of shape/ramp
local function note_ramp(change)
  if redis.call('HEXISTS', key, 'rampUp') == 0 then return end
  local doc = shapes.document(redis.call('HGET', key, 'feedback'))
  doc.ramp = change(doc.ramp)
  redis.call('HSET', key, 'feedback', cjson.encode(doc))
  shapes.resolve(key, base, declared, overrides, now)
end

local now_ms = math.floor(now / 1000)
if ARGV[1] == 'clear' then
  if history.made(base, ARGV[6], 'resume', ARGV[5], ARGV[3], '{}', '') then return { 1, redis.call('HGETALL', key) } end
  redis.call('HDEL', key, 'pausedUntil', 'pauseReason', 'probe')
  note_ramp(function(known) return ramp.resumed(known, now_ms) end)
  history.note(base, now, 'resume', ARGV[5], ARGV[3], '{}', '')
else
  local ends_ms = ARGV[1] == 'until' and math.ceil(tonumber(ARGV[2])) or nil
  if history.made(base, ARGV[6], 'pause', ARGV[5], ARGV[3], '{}', ARGV[2], ends_ms) then
    return { 1, redis.call('HGETALL', key) }
  end
  local at = math.ceil(tonumber(ARGV[2]) * 1000)
  if ARGV[1] == 'for' then at = now + at end
  if at > (tonumber(redis.call('HGET', key, 'pausedUntil')) or 0) then
    redis.call('HSET', key, 'pausedUntil', as_text.us(at), 'pauseReason', ARGV[3])
    note_ramp(function(known) return ramp.paused(known, now_ms, math.ceil(at / 1000)) end)
  end
  -- Even a pause that changes nothing: resent after the longer one was ended, it would change something.
  history.note(base, now, 'pause', ARGV[5], ARGV[3], '{}', as_text.us(math.ceil(at / 1000)))
end
shapes.revise(key)
return shapes.finish(key, base, now)
