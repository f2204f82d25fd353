--[[
  One step of a queue whose groups never run dry, by the scripts of lua/, at a time that the step brings along.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  µs
    [2]  'declare', then JSON of the fields
         'depart', then jobs wanted, horizon (µs), the number of groups that have jobs, and the ids of jobs that ended
         'apply', then a request of lua/verbs/apply-feedback
         'delay', then the id of a running job that comes again later
         'promote', then the id of a job whose time has come
         'setGroup', then what lua/verbs/set-group takes
  Returns what the script does; of 'depart' the id, slot (µs) and score of each job. The id of a job is its group, a dash and a number.
]]
local faked = use 'faked'
local queue_groups = use 'groups/queue-groups'
local as_text = use 'redis/as-text'
local shapes = use 'shape/shapes'
local apply_feedback = use 'verbs/apply-feedback'
local declare_shape = use 'verbs/declare-shape'
local set_group = use 'verbs/set-group'

faked.now, faked.run = tonumber(ARGV[1]), '1'

local BACKLOG = 20
local keys, base, steps = { KEYS[1] }, string.sub(KEYS[1], 1, -11), {}

local function open()
  return queue_groups.open(base, shapes.load(KEYS[1], base, faked.now), faked.now)
end

local function leave(id)
  redis.call('LREM', base .. 'active', -1, id)
  redis.call('DEL', base .. id .. ':lock')
end

function steps.declare(fields) return declare_shape(keys, { fields, '', 'test' }) end
function steps.apply(request) return apply_feedback(keys, { request, '' }) end
function steps.setGroup(...) return set_group(keys, { ... }) end
function steps.delay(id)
  leave(id)
  return 1
end

function steps.promote(id)
  local g = open()
  g:insert(string.match(id, '^[^-]+'), id, 0)
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
    local group = 'g' .. i
    for _ = redis.call('ZCARD', base .. 'meta:group:jobs:' .. group) + 1, BACKLOG do
      local id = group .. '-' .. redis.call('INCR', base .. 'id')
      redis.call('HSET', base .. id, 'name', 'j', 'data', '{}', 'opts', '{"group":{"id":"' .. group .. '"}}', 'timestamp', '1')
      g:insert(group, id, 0)
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
