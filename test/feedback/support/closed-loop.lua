--[[
  One step of a queue that listens, by the scripts of lua/, at a time that the step brings along. The queue never runs dry.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  µs
    [2]  'declare', then JSON of the fields
         'depart', then the shape that the caller knows ('id:revision'), jobs wanted (> 1), horizon (µs), and the ids of jobs that ended
         'giveBack', then what lua/verbs/give-back takes
         'delay', then the id of a running job that comes again later
         'promote', then the id of a job whose time has come: it goes behind what waits
         'apply', then a request of lua/verbs/apply-feedback
  Returns what the script does.
]]
local faked = use 'faked'
local departure = use 'gate/departure'
local apply_feedback = use 'verbs/apply-feedback'
local declare_shape = use 'verbs/declare-shape'
local give_back = use 'verbs/give-back'

faked.now, faked.run = tonumber(ARGV[1]), '1'

-- Jobs that wait behind those that are asked for.
local BACKLOG = 30
local shape_key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local wait, active = base .. 'wait', base .. 'active'
local steps = {}

function steps.declare(fields)
  return declare_shape({ shape_key }, { fields, '', 'test' })
end

function steps.depart(identity, asked, horizon, ...)
  for _, id in ipairs({ ... }) do
    redis.call('LREM', active, -1, id)
    redis.call('DEL', base .. id, base .. id .. ':lock')
  end
  for _ = redis.call('LLEN', wait) + 1, asked + BACKLOG do redis.call('LPUSH', wait, redis.call('INCR', base .. 'id')) end
  local options = cmsgpack.pack({ token = 'token' })
  local call = {
    key = shape_key, base = base, identity = identity, horizon = tonumber(horizon),
    longest = tonumber(horizon), grant = ':0:0', caller = '', memo_ms = '1', token = 'token',
  }
  local reply = departure.start(call, tonumber(asked), '0', options)
  -- Each is another call.
  redis.call('DEL', base .. 'meta:grants::0')
  for _, granted in ipairs(reply[4] or {}) do
    redis.call('SET', base .. granted[2] .. ':lock', granted[7] == '' and 'token' or granted[7])
  end
  return reply
end

function steps.delay(id)
  redis.call('LREM', active, -1, id)
  redis.call('DEL', base .. id .. ':lock')
  return 1
end

function steps.promote(id)
  redis.call('LPUSH', wait, id)
  return 1
end

function steps.giveBack(...)
  return give_back({ shape_key }, { ... })
end

function steps.apply(request)
  return apply_feedback({ shape_key }, { request, '' })
end

return steps[ARGV[2]](unpack(ARGV, 3))
