--[[
  Replays many operations on a pool, a limit of one queue, in a single call, each at a time of Redis's clock.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  JSON: the operations, as in pool.ts
  Returns JSON for each operation: µs until it conforms, and the member; or whether it was done.
]]
local concurrency = use 'limits/concurrency'
local own_values = use 'limits/own-values'
local queue_limits = use 'limits/queue-limits'
local limit_state = use 'limits/state'
local shapes = use 'shape/shapes'

local base = string.sub(KEYS[1], 1, -11)
local shape, operations, before = { mode = 'enforce' }, {}, nil

local function open(now)
  shape.own_limits = own_values.any(base, 'keys') and { keys = 0 } or nil
  return queue_limits.open(shape, base, now)
end

local function part_of(op)
  for _, one in ipairs(queue_limits.states(open(op.now)[1])) do
    if one.member == op.member then return one end
  end
end

-- As shapes.resolve does.
function operations.limits(op)
  if before then own_values.forget_ended(base, before, own_values.ending(base, op.now, own_values.MOST), op.now) end
  limit_state.change_limits(base, op.limits, before or false, op.now, own_values.as_of)
  redis.call('HSET', KEYS[1], 'limits', op.limits)
  shape.limits, before = op.limits, op.limits
  return true
end

function operations.depart(op)
  -- As groups do, before they choose a job.
  if op.group ~= '' and shape.own_limits then shapes.end_own_values(base, shape.own_limits, op.now) end
  local parts = open(op.now)
  queue_limits.serve(parts, op.group)
  local wait = queue_limits.wait(parts, op.cost)
  if wait > op.ahead then return { string.format('%.17g', wait), '' } end
  queue_limits.charge(parts, wait + op.late, op.lease)
  local member = cjson.decode(queue_limits.members(parts)).keys
  queue_limits.save(parts, base, false)
  return { string.format('%.17g', wait), member }
end

function operations.back(op)
  local part = part_of(op)
  local done = part ~= nil and part.l.mode == 'enforce' and part.l.verbs.take_back(part.s, part.l, op.cost, op.slot, { entries = math.huge })
  if done then part.l.verbs.save(part.s, part.l) end
  return done
end

function operations.settle(op)
  local part = part_of(op)
  local counts = part ~= nil and part.l.mode == 'enforce'
  if counts then limit_state.settle(part.l, part.s, op.cost) end
  return counts
end

function operations.release(op)
  local part = part_of(op)
  if part then concurrency.give_back(part.s.key, op.lease, op.cost) end
  return part ~= nil
end

-- `rate` null: no limit.
function operations.set(op)
  local l = open(op.now)[1].l.member
  own_values.set(base, l, op.member, { member = op.member }, op.now, op.change, '', '', op.untilMs)
  return true
end

local answers = {}
for i, op in ipairs(cjson.decode(ARGV[1])) do answers[i] = cjson.encode({ operations[op.verb](op) }) end
return answers
