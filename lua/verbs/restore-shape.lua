--[[
  Restores a shape that Redis has lost (a restart without its data, FLUSHALL, a failover to an older copy) from the
  memory of a process that has seen it. A bucket that was lost with it starts as onStateLoss says.
  ARGV
    [1]  'id:revision' of the shape
    [2…] its fields and values, as they were stored
  Its revision is kept: callers that know a later one see that this one is older. If another process has declared a
  shape since, that declaration stays. Fields that it leaves out, overrides, values of single keys (limits/own-values),
  the pause and feedback are restored alongside.
  Returns {1 if it was restored, 2 if it replaced an older copy, 0 if Redis has it again already, the shape, for how
  long nothing departs, µs}.
]]
local own_values = use 'limits/own-values'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local run_id = use 'redis/run-id'
local history = use 'reports/history'
local shapes = use 'shape/shapes'
local lease = use 'sharding/lease'

local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now = redis_now()
local stored = shapes.read(key)
if not shapes.is_lost(stored, ARGV[1]) then return { 0, redis.call('HGETALL', key), 0 } end
local run, id, revision = run_id(), string.match(ARGV[1], '^(%d+):(%d+)$')
-- A process with an older copy was first: the loss is known already, and the newer copy replaces it.
local again = stored and stored.id == id and redis.call('HGET', key, 'restored') == run

local function add_missing(to, from)
  for field, entry in pairs(from) do
    local outranks = to[field] and entry.version and (not to[field].version or to[field].version < entry.version)
    if not to[field] or outranks then to[field] = entry end
  end
end

-- Restores feedback and the probe, except entries that were set since.
local function merge_feedback(known)
  local f = redis.call('HMGET', key, 'feedback', 'probe')
  if known.feedback then
    local doc = shapes.document(f[1])
    for name, entry in pairs(cjson.decode(known.feedback)) do
      if doc[name] == nil then doc[name] = entry end
    end
    redis.call('HSET', key, 'feedback', cjson.encode(doc))
  end
  if known.probe and not f[2] then redis.call('HSET', key, 'probe', known.probe) end
end

local known = {}
for i = 2, #ARGV, 2 do known[ARGV[i]] = ARGV[i + 1] end

local function merge()
  local f = redis.call('HMGET', key, 'declared', 'overrides', 'pausedUntil')
  local declared, overrides = shapes.document(f[1]), shapes.document(f[2])
  add_missing(declared, shapes.document(known.declared))
  add_missing(overrides, lease.without(shapes.document(known.overrides)))
  if (tonumber(known.pausedUntil) or 0) > (tonumber(f[3]) or 0) then
    redis.call('HSET', key, 'pausedUntil', known.pausedUntil, 'pauseReason', known.pauseReason or '')
  end
  merge_feedback(known)
  -- The older id of the two: no caller may find a younger shape than the one it knows.
  redis.call('HSET', key, 'born', id, 'rev', as_text.us(math.max(stored.revision, tonumber(revision))))
  shapes.resolve(key, base, declared, overrides, now)
end

local older = {}
if stored and stored.id ~= id then
  merge()
else
  older = redis.call('HKEYS', key)
  redis.call('DEL', key)
  redis.call('HSET', key, unpack(ARGV, 2))
  redis.call('HDEL', key, 'claimed', 'claimedUntil')
  if redis.call('HGET', key, 'lease') then lease.forget(key, base, now) end
  shapes.define_limits(base, redis.call('HGET', key, 'limits'), 'restored')
end
for name in pairs(own_values.restore(base, known, older)) do shapes.note_own_values(key, base, name, now) end
-- Jobs may have departed since this copy was made: the bucket does not start empty.
redis.call('HSET', key, 'metered', 1, 'restored', run)
shapes.revise(key, 0)
local concurrency = redis.call('HGET', key, 'concurrency')
if concurrency then redis.call('HSET', base .. 'meta', 'concurrency', concurrency) end
if not again then history.note(base, now, 'restored', '', 'Redis had lost the shape', '{}', '') end
local answer = shapes.finish(key, base, now)
local shape, hold = shapes.load(key, base, now), 0
if shape.interval then
  local meter_key = base .. 'meta:meter'
  local m = meter.open(meter_key, now, shape, run, 0)
  if m.loss or m.known then meter.save(meter_key, m) end
  hold = m.hold_us or 0
  if m.loss and shape.ramp_up and shape.ramp_up.afterIdleMs and not shape.rests then shapes.rise(key, base, now) end
end
return { again and 2 or 1, answer[2], hold }
