--[[
  Replays many operations on a few limits in a single call: lua/limits/checks and the scripts over it, with a clock that the
  operations bring along.
  KEYS
    [1…n]     the control hash of each limit
    [n + 1…]  the state of its key
  ARGV
    [1]  JSON: the definitions of the limits, each JSON again
    [2]  the operations: for each seven doubles, as in replay.ts
    [3]  'never': no key expires; 'held': each expires by the held clock, to the millisecond
  Returns four doubles for each operation, in one string: µs until it conforms, 1 where it was allowed, units left, µs at
  which all are there again.
]]
local held = use 'held'
local limit_checks = use 'limits/checks'
local queue_limits = use 'limits/queue-limits'
local limit_state = use 'limits/state'
local decide = use 'verbs/decide'
local extend_lease = use 'verbs/extend-lease'
local release_lease = use 'verbs/release-lease'

local definitions, expires = cjson.decode(ARGV[1]), ARGV[3] == 'held'
local limits, ends = {}, {}

local DEPARTURES = 4

local function lease_name(op)
  return string.format('lease%.0f', op.lease)
end

local function ask(op)
  local s = op.l.verbs.open(op.key, op.l, held.now)
  return { l = op.l, s = s, blocked = 0, cost = op.cost, offset = op.l.verbs.earliest(s, op.l, op.cost) }
end

-- As lua/verbs/reserve.lua.
local function charge(part, offset, op)
  queue_limits.charge({ part }, offset, lease_name(op))
  if part.charged then part.l.verbs.save(part.s, part.l) end
end

local function tell(part, allowed)
  local left, reset = part.l.verbs.view(part.s, part.l)
  return part.offset, allowed and 1 or 0, left, reset
end

local verbs = {}

function verbs.peek(op)
  local part = ask(op)
  return tell(part, limit_checks.wait(part) == 0)
end

-- As where a queue learns of it at once; else what is done next comes upon it.
function verbs.change(op)
  local packed = op.l.interval and redis.call('GET', op.key)
  local before = op.l.before
  if packed then
    limit_state.follow_clock(before)
    limit_state.at(op.key, op.l, held.now, packed, before)
  end
  return verbs.peek(op)
end

function verbs.take(op)
  local part = ask(op)
  local allowed = limit_checks.wait(part) == 0
  if allowed then charge(part, 0, op) end
  return tell(part, allowed)
end

-- As a queue with a horizon does: what conforms soon is charged for that time.
function verbs.reserve(op)
  local part = ask(op)
  local allowed = limit_checks.wait(part) <= op.ahead
  if allowed then charge(part, limit_checks.wait(part), op) end
  return tell(part, allowed)
end

-- As where another limit holds it back for longer than this one.
function verbs.late(op)
  local part = ask(op)
  charge(part, part.offset + op.ahead, op)
  return tell(part, true)
end

-- As a queue does with the jobs at its head: charged one by one, stored once.
function verbs.depart(op)
  local part = ask(op)
  local charged = 0
  while charged < DEPARTURES and limit_checks.wait(part) <= op.ahead do
    charged = charged + 1
    part.s.lease = string.format('lease%.0f', op.lease + charged)
    part.l.verbs.charge(part.s, part.l, op.cost, part.offset)
    part.offset = part.l.verbs.earliest(part.s, part.l, op.cost)
  end
  if charged > 0 then part.l.verbs.save(part.s, part.l) end
  return tell(part, charged > 0)
end

function verbs.settle(op)
  local s = op.l.verbs.open(op.key, op.l, held.now)
  limit_state.settle(op.l, s, op.cost)
  return tell({ l = op.l, s = s, offset = 0 }, true)
end

-- As a queue does with jobs that never started: what was charged for a time (op.at) is taken back.
function verbs.back(op)
  local s = op.l.verbs.open(op.key, op.l, held.now)
  local done = op.l.verbs.take_back(s, op.l, op.cost, op.at, { entries = math.huge })
  if done then op.l.verbs.save(s, op.l) end
  return tell({ l = op.l, s = s, offset = 0 }, done)
end

-- As a waiting caller does that gives up: nothing was charged after its turn.
function verbs.undo(op)
  limit_state.undo(op.l, op.l.verbs.open(op.key, op.l, held.now), op.cost)
  return tell({ l = op.l, s = op.l.verbs.open(op.key, op.l, held.now), offset = 0 }, true)
end

function verbs.lose(op)
  redis.call('DEL', op.key)
  return 0, 0, 0, 0
end

function verbs.extend(op)
  return extend_lease({ op.key }, { lease_name(op), op.cost, op.l.window }), 0, 0, 0
end

function verbs.release(op)
  return release_lease({ op.l.control, op.key }, { lease_name(op), op.cost }), 0, 0, 0
end

-- All limits together, by the script itself. A call with the same verb and lease is sent again, but within a replay only.
local replayed = false
local function decide_all(op, verb)
  if not replayed then redis.call('DEL', KEYS[1] .. ':last') end
  replayed = true
  local args, keys = { #definitions, '', verb .. lease_name(op) .. ' ', '1000', unpack(definitions) }, { unpack(KEYS) }
  for i = 1, #definitions do keys[i] = KEYS[i] .. ':switch' end
  keys[#keys + 1] = KEYS[1] .. ':last'
  local asked = '1 ' .. verb
  for i = 1, #definitions do asked = asked .. string.format(' %d %.17g %s;', i, op.cost, lease_name(op)) end
  args[#args + 1] = asked
  local told, wait = decide(keys, args), 0
  for i = 3, #told, 3 do wait = math.max(wait, told[i]) end
  return wait, told[2] % 2, 0, 0
end

function verbs.takeAll(op)
  return decide_all(op, 'take')
end

function verbs.peekAll(op)
  return decide_all(op, 'peek')
end

-- Redis's own clock does not move with the held one, so no key is left to it.
local function drop_expired()
  for key, at in pairs(ends) do
    if at <= held.now then
      redis.call('DEL', key)
      ends[key] = nil
    end
  end
end

local function note_expiry()
  for i = #definitions + 1, #KEYS do
    local ms = redis.call('PTTL', KEYS[i])
    if ms >= 0 then
      redis.call('PERSIST', KEYS[i])
      ends[KEYS[i]] = expires and held.now + ms * 1000 or nil
    end
  end
end

local VERBS = {
  'peek', 'take', 'reserve', 'late', 'settle', 'lose', 'extend', 'release', 'depart', 'change', 'takeAll', 'peekAll',
  'back', 'undo',
}
local answers, position = {}, 1
while position <= #ARGV[2] do
  local op, verb, number = {}, nil, nil
  verb, held.now, number, op.cost, op.ahead, op.lease, op.at, position = struct.unpack('<ddddddd', ARGV[2], position)
  if expires then drop_expired() end
  if number > 0 then
    limits[number] = limits[number] or limit_checks.read(KEYS[number], definitions[number], held.now)
    op.l, op.key = limits[number], KEYS[#definitions + number]
    -- Each call of a script begins anew.
    limit_state.follow_clock(op.l)
  end
  answers[#answers + 1] = struct.pack('<dddd', verbs[VERBS[verb]](op))
  note_expiry()
end
return table.concat(answers)
