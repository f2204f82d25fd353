--[[
  Replays many operations on the groups of one queue in a single call, each at a time of Redis's clock.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  JSON: the defaults of the groups
    [2]  JSON: the operations
    [3]  JSON: the limits per group or key, '' for none
    [4]  after how long a job counts as one level more important, ms; '' where jobs do not age
    [5]  '1' if departures and ends at the same time are decided together, as by the scripts that finish many jobs
  Returns for each operation the job that left and its slot, µs, or 'late', or what else it returns; '' for nothing.
]]
local held_clock = use 'held-clock'
local unstarted = use 'ends/unstarted'
local settling = use 'feedback/settling'
local group_limits_of = use 'groups/limits-of'
local group_settings = use 'groups/settings'
local queue_groups = use 'groups/queue-groups'
local charged = use 'limits/charged'
local own_values = use 'limits/own-values'
local limit_state = use 'limits/state'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'
local parsed = use 'shape/parsed'

-- As in reference.ts: no slot is granted further ahead.
charged.AHEAD_US = 200000
local base = string.sub(KEYS[1], 1, -11)
local wait, active, prioritized = base .. 'wait', base .. 'active', base .. 'prioritized'
local library = queue_groups
local operations = {}

-- The groups of operations that are decided together.
local together

local function close()
  if together then together:save() end
  together = nil
end

local shape = {
  id = '0', rules_at = tonumber(redis.call('HGET', KEYS[1], 'rulesAt') or 0),
  groups = ARGV[1], groups_at = 0, mode = 'enforce', ageing_ms = tonumber(ARGV[4]),
  keyed_limits = ARGV[3] ~= '' and ARGV[3] or nil,
}
if shape.keyed_limits then redis.call('HSET', KEYS[1], 'limits', shape.keyed_limits) end
local rate_changes = redis.call('HGET', KEYS[1], 'rateChanges')
shape.rate_changes = rate_changes and cjson.decode(rate_changes) or nil

local lanes, _, has_keys = parsed.lanes_of(ARGV[3])
shape.has_places = parsed.has_places(ARGV[3])
if has_keys then shape.lanes = { lanes } end

local function note_own_limits()
  if not shape.keyed_limits or redis.call('EXISTS', base .. 'meta:limits:changed') == 0 then return end
  shape.own_limits = {}
  for _, l in ipairs(cjson.decode(shape.keyed_limits)) do shape.own_limits[l.name] = 0 end
end
note_own_limits()

local function open(now)
  if together and together.now == now then return together end
  close()
  local g = library.open(base, shape, now)
  g.limits = group_limits_of(base, shape, now)
  if ARGV[5] == '1' then together, g.most, g.trusts = g, 3, true end
  return g
end

local function save(g)
  if g ~= together then g:save() end
end

-- As a declaration of the same limits with other rates.
function operations.limits(now, limits)
  local known = redis.call('HGET', KEYS[1], 'rateChanges')
  local ending = own_values.ending(base, now, own_values.MOST)
  own_values.forget_ended(base, shape.keyed_limits, ending, now, nil, known)
  local rate_changes = limit_state.rate_changes(known, shape.keyed_limits, limits, now)
  shape.keyed_limits, shape.rules_at, shape.rate_changes, shape.keyed = limits, now, rate_changes and cjson.decode(rate_changes), nil
  redis.call('HSET', KEYS[1], 'limits', limits, 'rulesAt', as_text.us(now), 'rateChanges', rate_changes or '{}')
  return ''
end

-- id, options, group or '', priority; number: of a prioritized job without a group
function operations.add(now, id, options, group, priority, number)
  redis.call('HSET', base .. id, 'opts', options, 'queuedAt', as_text.us(now), 'priority', priority)
  if has_keys then
    local g = open(now)
    local _, _, lane = g:place_of(id)
    g:insert(group, id, priority, nil, false, lane)
    g:save()
    return ''
  end
  if group == '' then
    if priority == 0 then redis.call('LPUSH', wait, id)
    else redis.call('ZADD', prioritized, as_text.us(priority * library.BAND + number), id) end
    return ''
  end
  local g = open(now)
  g:insert(group, id, priority)
  g:save()
  return ''
end

-- As the gate does with it. soon and horizon: µs from now
function operations.depart(now, soon, horizon)
  local g = open(now)
  local pick, slot = g:pick(now + soon, now + horizon)
  while pick and pick.from == 'group' and not g:take(pick) do pick, slot = g:pick(now + soon, now + horizon) end
  if not pick then
    save(g)
    return 'none ' .. (slot and (slot == math.huge and 'inf' or as_text.us(slot)) or '')
  end
  local cost, _, _, deadline = job_options.cost_of_job(base .. pick.id)
  if pick.from == 'wait' then redis.call('RPOP', wait) end
  if pick.from == 'prioritized' then redis.call('ZREM', prioritized, pick.id) end
  slot = math.max(now + soon, pick.slot)
  if not g:is_paced(false, deadline) then pick.bucket = nil end
  if deadline and slot > deadline then
    g:served(pick, now, cost, false)
    save(g)
    return pick.id .. ' late'
  end
  redis.call('LPUSH', active, pick.id)
  redis.call('SET', base .. pick.id .. ':lock', '')
  redis.call('HSET', base .. pick.id, 'departure', as_text.us(slot), 'processedOn', as_text.us(math.ceil(slot / 1000)),
    'charged', charged.rules(shape))
  g:served(pick, slot, cost, true)
  save(g)
  return pick.id .. ' ' .. as_text.us(slot)
end

function operations.finish(now, id)
  redis.call('LREM', active, 1, id)
  redis.call('DEL', base .. id .. ':lock')
  -- No job ends in the call that started it.
  for i = 1, together and #together.begun or 0, 2 do
    if together.begun[i] == id then
      close()
      break
    end
  end
  local g = together or library.bare(base, shape)
  g:left(id)
  save(g)
  return ''
end

-- A job that had left goes back to its place.
function operations.back(now, id, number)
  redis.call('LREM', active, 1, id)
  redis.call('DEL', base .. id .. ':lock')
  local g = library.bare(base, shape)
  g:back_in(id, number)
  g:save()
  return ''
end

-- As lua/verbs/give-back.lua: it has not started.
function operations.late(now, id, number)
  local rules, leaving = charged.rules(shape), { [id] = true }
  local jobs = unstarted.granted(base, rules, leaving)
  unstarted.refund_limits(base, shape, now, rules, jobs, leaving)
  unstarted.refund_buckets(base, shape, now, jobs)
  return operations.back(now, id, number)
end

-- As lua/verbs/settle-cost.lua. unit: '' for that of the rate
function operations.settle(now, id, attempt, unit, actual)
  local charge = settling.open(base, shape, now, id)
  settling.correct(charge, unit, settling.outstanding(charge, attempt, unit, actual, 60000))
  settling.close(charge)
  return ''
end

-- ready: until when the slots that were granted before may lie, µs
function operations.lose(now, ready)
  local g = open(now)
  g:fill(ready)
  g:save()
  return ''
end

-- As a script of BullMQ that knows nothing of groups.
function operations.remove(_, id)
  redis.call('ZREM', prioritized, id)
  redis.call('LREM', wait, 1, id)
  redis.call('DEL', base .. id)
  return ''
end

-- A waiting job of a queue with lanes is removed, as by BullMQ's scripts (groups.handle).
function operations.leave(_, id)
  redis.call('ZREM', prioritized, id)
  local g = library.bare(base, shape)
  local group, _, lane = g:place_of(id)
  g:remove(group, id, lane)
  g:save()
  redis.call('DEL', base .. id)
  return ''
end

-- Who stands in the line of which cell, and when the next one may go: of each, in order of their names.
function operations.lines()
  local cells, found = redis.call('HKEYS', base .. 'meta:lines'), {}
  table.sort(cells)
  for i, cell in ipairs(cells) do
    local due = redis.call('ZSCORE', base .. 'meta:lines:due', cell) or 'none'
    found[i] = cell .. ' ' .. due .. ' ' .. table.concat(redis.call('ZRANGE', base .. 'meta:line:' .. cell, 0, -1, 'WITHSCORES'), ' ')
  end
  return table.concat(found, '; ')
end

-- As lua/verbs/set-group.lua. change, until_ms ('' for none), lifts ('1' or '') as there
function operations.set(now, group, change, until_ms, lifts)
  local g = open(now)
  group_settings.set(g, group, cjson.decode(change), 'test', 'test', tonumber(until_ms), lifts == '1')
  g:save()
  return ''
end

-- As lua/verbs/set-limit.lua.
function operations.own(now, name, keys, change, until_ms)
  local g = open(now)
  keys = cjson.decode(keys)
  local l, value = g.limits.named(name, keys)
  own_values.set(base, l, value, keys, now, cjson.decode(change), 'test', 'test', tonumber(until_ms), false)
  note_own_limits()
  g:cell_freed(name .. ':' .. value, keys.group or '')
  g:save()
  return ''
end

-- As feedback about a group.
function operations.hold(now, group, change, until_ms)
  local g = open(now)
  group_settings.change(g, group, cjson.decode(change), 'test', 'test', until_ms)
  g:save()
  return ''
end

local replies = {}
for i, operation in ipairs(cjson.decode(ARGV[2])) do
  if operation[1] ~= 'depart' and operation[1] ~= 'finish' then close() end
  held_clock.now = operation[2]
  if not together then held_clock.expire() end
  replies[i] = operations[operation[1]](unpack(operation, 2))
end
close()
return replies
