--[[
  One step of a queue whose groups, or hosts, never run dry, by the scripts of lua/, at a time that the step brings along.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  µs
    [2]  'declare', then JSON of the fields
         'depart', then jobs wanted, horizon (µs), the number of groups that have jobs, and the ids of jobs that ended. If the queue
         has limits by keys, hosts take the place of groups
         'apply', then a request of lua/verbs/apply-feedback
         'delay', then the id of a running job that comes again later
         'promote', then the id of a job whose time has come
         'setGroup', then what lua/verbs/set-group takes; 'setLimit' as well
  Returns what the script does; of 'depart' the id, slot (µs) and score of each job. The id of a job is its group or host, a dash and a number.
]]
local faked = use 'faked'
local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local as_text = use 'redis/as-text'
local shapes = use 'shape/shapes'
local apply_feedback = use 'verbs/apply-feedback'
local declare_shape = use 'verbs/declare-shape'
local set_group = use 'verbs/set-group'
local set_limit = use 'verbs/set-limit'

faked.now, faked.run = tonumber(ARGV[1]), '1'

local BACKLOG = 20
local keys, base, steps = { KEYS[1] }, string.sub(KEYS[1], 1, -11), {}

local function open()
  local shape = shapes.load(KEYS[1], base, faked.now)
  local g = queue_groups.open(base, shape, faked.now)
  g.limits = group_limits_of(base, shape, faked.now)
  g.horizon, g.lock_ms = 50000, 30000
  return g
end

-- Where the jobs of a group or host wait: the key of their set, their options, and what they are inserted with.
local function place_of(g, name)
  if not g.limits then return 'meta:group:jobs:' .. name, '{"group":{"id":"' .. name .. '"}}', name end
  local lane = '0:4:host' .. #name .. ':' .. name
  return 'meta:lane:jobs:' .. lane, '{"keys":{"host":"' .. name .. '"}}', '', lane
end

local function leave(id)
  redis.call('LREM', base .. 'active', -1, id)
  redis.call('DEL', base .. id .. ':lock')
end

function steps.declare(fields) return declare_shape(keys, { fields, '', 'test' }) end
function steps.setLimit(...) return set_limit(keys, { ... }) end
function steps.apply(request) return apply_feedback(keys, { request, '' }) end
function steps.setGroup(...) return set_group(keys, { ... }) end
function steps.delay(id)
  leave(id)
  return 1
end

function steps.promote(id)
  local g = open()
  local _, _, group, lane = place_of(g, string.match(id, '^[^-]+'))
  g:insert(group, id, 0, nil, nil, lane)
  g:save()
  return 1
end

function steps.depart(asked, horizon, groups, ...)
  for _, id in ipairs({ ... }) do
    leave(id)
    redis.call('DEL', base .. id)
  end
  local g = open()
  for i = 1, tonumber(groups) do
    local name = 'g' .. i
    local set, options, group, lane = place_of(g, name)
    for _ = redis.call('ZCARD', base .. set) + 1, BACKLOG do
      local id = name .. '-' .. redis.call('INCR', base .. 'id')
      redis.call('HSET', base .. id, 'name', 'j', 'data', '{}', 'opts', options, 'timestamp', '1')
      g:insert(group, id, 0, nil, nil, lane)
    end
  end
  local granted = {}
  for _ = 1, tonumber(asked) do
    local pick = g:pick(faked.now, faked.now + tonumber(horizon))
    if not pick then break end
    if g:take(pick) then
      local slot = math.max(faked.now, pick.slot)
      g:served(pick, slot, pick.cost or 1, true)
      redis.call('LPUSH', base .. 'active', pick.id)
      redis.call('SET', base .. pick.id .. ':lock', 'token')
      granted[#granted + 1] = { pick.id, as_text.us(math.ceil(slot)), pick.number }
    end
  end
  g:save()
  return granted
end

return steps[ARGV[2]](unpack(ARGV, 3))
