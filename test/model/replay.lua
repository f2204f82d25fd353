--[[
  Replays many operations on one queue in a single call: the scripts of lua/, each as a function, with the clock
  and run id of each operation. Of BullMQ's script there is only the pop that the gate checks.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  JSON: the operations
  Returns {reply, state of the meter} for each operation.
]]
local faked = use 'faked'
local departure = use 'gate/departure'
local charged = use 'limits/charged'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local shapes = use 'shape/shapes'
local declare_shape = use 'verbs/declare-shape'
local give_back = use 'verbs/give-back'
local override_shape = use 'verbs/override-shape'
local pause_meter = use 'verbs/pause-meter'
local restore_shape = use 'verbs/restore-shape'
local view = use 'verbs/view'

-- As in mirror.ts: no slot is granted further ahead.
charged.AHEAD_US = 2000000
local shape_key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local wait, active, meter_key = base .. 'wait', base .. 'active', base .. 'meta:meter'
local operations, options = {}, cmsgpack.pack({ token = 'token' })
local granted = {}

function operations.depart(op)
  for _, job in ipairs(op.jobs) do
    redis.call('HSET', base .. job[1], 'opts', job[2])
    redis.call('LPUSH', wait, job[1])
  end
  local call = {
    key = shape_key, base = base, identity = '', horizon = op.horizonUs, longest = op.horizonUs,
    grant = ':0:0', caller = '', memo_ms = '1', token = op.asked > 1 and 'token',
  }
  local answer = departure.start(call, op.asked, '0', options)
  -- Each is another call.
  redis.call('DEL', base .. 'meta:grants::0')
  if #answer[4] > 0 then granted[#granted + 1] = answer end
  local grants = {}
  for i, grant in ipairs(answer[4]) do grants[i] = { grant[2], grant[3] } end
  return { grants, answer[5], answer[5] == 'closed' and answer[7] or '' }
end

-- As a worker that closes: it gives back the last jobs of a grant. ago: how many were granted later
function operations.giveBack(op)
  local answer = granted[#granted - op.ago]
  local grants = answer and answer[4] or {}
  local first = #grants - op.count + 1
  if op.count == 0 or first < 1 then return 0 end
  local cost_us = 0
  for i = first, #grants do cost_us = cost_us + tonumber(grants[i][5]) end
  local before = first > 1 and grants[first - 1][3] or answer[10][5] or ''
  local args = { tostring(answer[10][6] or ''), cost_us, before, '', '', '' }
  for i = first, #grants do
    local id = grants[i][2]
    for _, value in ipairs({ id, redis.call('GET', base .. id .. ':lock'), '' }) do args[#args + 1] = value end
  end
  for _ = first, #grants do table.remove(grants) end
  return give_back({ shape_key }, args)[2]
end

function operations.declare(op)
  return declare_shape({ shape_key }, { op.fields, '', 'test' })[1]
end

function operations.override(op)
  return override_shape({ shape_key }, { op.changes, 'test', 'test', op.ttl, '0', '' })[1]
end

function operations.pause(op)
  return pause_meter({ shape_key }, { op.kind, op.ms, 'test', '', 'test' })[1]
end

function operations.loseMeter()
  granted = {}
  -- Besides the bucket, the hash may hold counters.
  local had = redis.call('HEXISTS', meter_key, 'bucket')
  redis.call('DEL', meter_key)
  return had
end

function operations.loseAll()
  granted = {}
  local shape = redis.call('HGETALL', shape_key)
  redis.call('DEL', shape_key, meter_key)
  local fields = {}
  for i = 1, #shape, 2 do fields[shape[i]] = shape[i + 1] end
  return restore_shape({ shape_key }, { fields.born .. ':' .. fields.rev, unpack(shape) })[1]
end

-- What has ended is written by the next script that may: as the view sees it before.
function operations.read(op)
  local answer = cjson.decode(view({ shape_key }, { 'meter', '{}', '', '' })[1])
  shapes.load(shape_key, base, op.now)
  return { answer.level or '0', answer.slot or '' }
end

local replies = {}
for i, op in ipairs(cjson.decode(ARGV[1])) do
  faked.now, faked.run = op.now, op.run
  faked.expire()
  local reply = operations[op.what](op)
  local m, state = meter.stored(base), {}
  for at, number in ipairs(m and { m.origin, m.tat, m.last, m.interval, m.burst, m.horizon } or {}) do
    state[at] = as_text.exact(number)
  end
  if m then state[#state + 1] = m.mode end
  replies[i] = { reply, state }
end
return replies
